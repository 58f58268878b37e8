"""A change of many nodes is one write: whoever hears that it was refused can rely on it that
nothing of it was done. No function writes for one node after the other, or twice in a row."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.contract.test_bounded import in_product

PLACES = ("layercake/features/", "layercake/api/", "layercake/agents/", "layercake/fleet/")
GOES_ON = {
    "layercake/features/rolls/manager.py:advance": "two decisions of the head, each of its own"
}
"""{function that writes several times: why it may}."""
LOOPS = (
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ListComp,
    ast.DictComp,
    ast.SetComp,
    ast.GeneratorExp,
)
WRITES = ("write", "remove", "execute", "step")


def is_write(node: ast.AST) -> bool:
    """Whether this waits until something is on the disk."""
    if isinstance(node, ast.AsyncWith):
        names = [ast.unparse(item.context_expr) for item in node.items]
        return any(name.endswith(("transaction()", "transaction(revises=False)")) for name in names)
    if not isinstance(node, ast.Await) or not isinstance(node.value, ast.Call):
        return False
    function = node.value.func
    if not isinstance(function, ast.Attribute) or function.attr not in WRITES:
        return False
    return ast.unparse(function.value).endswith(("_rows", "_database", "database", "kept"))


def own(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, without that of functions in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from own(child)


def several(path: str, tree: ast.AST) -> Iterator[str]:
    """The functions that write in a loop, or several times on one way."""
    for function in ast.walk(tree):
        if path.startswith(PLACES) and isinstance(function, ast.AsyncFunctionDef):
            loops = (node for node in own(function) if isinstance(node, LOOPS))
            if any(map(is_write, (inner for loop in loops for inner in own(loop)))) or (
                most(function.body) > 1
            ):
                yield f"{path}:{function.name}"


def most(body: list[ast.stmt]) -> int:
    """How many writes there are on one way through statements, at most."""
    return sum(map(of_one, body))


def of_one(statement: ast.stmt) -> int:
    """The same of one statement; the way that ends in it is another one than that which goes on."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return 0
    if isinstance(statement, ast.If):
        ends = bool(statement.body) and isinstance(statement.body[-1], ast.Return | ast.Raise)
        return max(0 if ends else most(statement.body), most(statement.orelse))
    blocks = [getattr(statement, field, []) for field in ("body", "orelse", "finalbody")]
    blocks += [handler.body for handler in getattr(statement, "handlers", [])]
    blocks += [case.body for case in getattr(statement, "cases", [])]
    if any(blocks):
        return sum(map(most, blocks)) + is_write(statement)
    return sum(map(is_write, own(statement)))


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("for one in many:\n  await self._rows.write(one)", ["f"]),
        ("await self._rows.write(*many)", []),
        ("async with desire.transaction() as t:\n  pass\nawait self.kept.step(1)", ["f"]),
        ("if a:\n  await self._rows.write(1)\n  return\nawait self._rows.write(2)", []),
        ("if a:\n  await self._rows.write(1)\nelse:\n  await self._rows.remove(2)", []),
        (
            "if a:\n  await self._rows.write(1)\n  return\nelse:\n  await self._rows.write(2)\n"
            "await self._rows.write(3)",
            ["f"],
        ),
        ("a: int = await self._rows.write(1)\nb += await self._rows.write(2)", ["f"]),
        ("async for one in many:\n  await self._rows.write(one)", ["f"]),
        ("await gather(*[await self._rows.write(one) for one in many])", ["f"]),
        ("try:\n  await self._rows.write(1)\nexcept A:\n  await self._rows.write(2)", ["f"]),
        ("found = await self._database.execute(a, b)\nreturn await self._rows.write(c)", ["f"]),
    ],
)
def test_it_finds_what_it_looks_for(body: str, found: list[str]) -> None:
    lines = "\n".join(f"  {line}" for line in body.splitlines())
    tree = ast.parse(f"async def f():\n{lines}\n")
    assert list(several(PLACES[0] + "a.py", tree)) == [f"{PLACES[0]}a.py:{name}" for name in found]


def test_each_change_is_one_write() -> None:
    assert {*in_product(several)} == GOES_ON.keys()
