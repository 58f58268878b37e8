"""Private parts stay private: `x._name` only where x is self or cls, and nothing imports a name
that begins with one underscore."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("layercake", "pxe", "powerman", "imageapi", "minos", "vm-testbed")
NAMED_TUPLE = {"_replace", "_asdict", "_fields", "_make"}
"""Public in spite of their underscore (collections.namedtuple)."""

UNAVOIDABLE = {
    "os._exit": "public, with an underscore as a warning: a forked child ends without tidying up "
    "what is its parent's",
    "system._conn": "sushy has no log services of its own, and no other way to its connection",
    "self._root._conn": "sushy closes its connection in no other way",
    "external._code_to_hash_pyc": "importlib's, and the one writer of that format",
}


def private(name: str) -> bool:
    return (
        name.startswith("_")
        and not name.startswith("__")
        and name not in NAMED_TUPLE
        and name != "_"
    )


def uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every use of somebody else's private part: (line, what)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            owner = node.value
            text = ast.unparse(node)
            if (
                not (isinstance(owner, ast.Name) and owner.id in ("self", "cls"))
                and text not in UNAVOIDABLE
            ):
                yield node.lineno, text
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if private(alias.name):
                    yield (
                        node.lineno,
                        f"from {'.' * node.level}{node.module or ''} import {alias.name}",
                    )


def files() -> list[Path]:
    found = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return [path for path in found if not path.name.startswith("module_pb2")]


def test_nobody_uses_anothers_private_parts() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in files()
        for line, what in uses(ast.parse(path.read_text()))
    ]
    assert not found, "\n".join(["make it public, or give it to whoever needs it:", *found])


def test_the_check_sees_what_it_should() -> None:
    text = (
        "from a import _b\nx._y\nself._y\ncls._y\nt._replace()\nx.__dict__\nimport "
        "os\nos._exit(0)\nx.y._z\n"
    )
    assert list(uses(ast.parse(text))) == [(1, "from a import _b"), (2, "x._y"), (9, "x.y._z")]
