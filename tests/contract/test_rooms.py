"""The rooms of the house: modules are named once, nouns are the same on each storey, no room is
crowded."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from layercake.head import modules
from layercake.head.modules import standard
from layercake.kraken.events import EventKind
from tests.contract.house import without_collection

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("layercake", "pxe", "powerman", "imageapi", "minos")
HEAD_SIDE = tuple(
    f"layercake/{name}"
    for name in ("head", "features", "modules", "agents", "fleet", "api", "client", "cli")
)
STOREYS = ("layercake/cli",)
NOUNS = {
    "inventory",
    "nodes",
    "power",
    "images",
    "boots",
    "rolls",
    "events",
    "graph",
    "head",
    "calls",
    "guard",
    "history",
    "tokens",
    "audit",
    "files",
    "machines",
    "tpm",
    "releases",
    "metrics",
    "consoles",
    "dashboard",
    "report",
}
OTHERS: dict[str, set[str]] = {  # what else stands on a storey, and is no noun
    "layercake/cli": {
        "main",
        "boot_build",
        "heads",
        "new",
        "check",
        "sim",
        "watch",
        "docs",
        "shell_groups",
        "similar",
    }
}


def trees(*places: str) -> Iterator[tuple[Path, ast.Module]]:
    for place in places:
        for path in sorted((ROOT / place).rglob("*.py")):
            if not path.name.startswith("module_pb2"):
                yield path.relative_to(ROOT), _tree(path)


@functools.cache
def _tree(path: Path) -> ast.Module:
    with without_collection():
        return ast.parse(path.read_text())


@pytest.fixture(scope="module", autouse=True)
def _trees_are_away() -> Iterator[None]:
    yield
    _tree.cache_clear()


def strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """All texts but docstrings."""
    told = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node


def test_a_module_is_named_once() -> None:
    """One line in layercake/head/modules.py; head, api and cli know the modules by that table
    alone."""
    names = {m.name for m in modules.built_in() if m.has_process}
    assert names == {"pxe", "powerman", "imageapi"}
    found = [
        f"{path}:{node.lineno}"
        for path, tree in trees(*HEAD_SIDE)
        for node in strings(tree)
        if node.value in names or str(node.value).partition(".")[0] in names
    ]
    assert [place.partition(":")[0] for place in found] == ["layercake/head/modules.py"] * 3
    allowed = (
        "imageapi.spec",
        "imageapi.store",
        "imageapi.build",
        "imageapi.events",
    )  # libraries: what an image is
    imports = [
        f"{path}:{node.lineno} {name}"
        for path, tree in trees(*HEAD_SIDE)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [a.name for a in node.names]
        )
        if name.partition(".")[0] in names
        and not (name.startswith(allowed) or (name, node.names[0].name) == ("imageapi", "events"))
    ]
    assert not imports


def test_a_module_declares_all_that_it_is() -> None:
    table = standard()
    for module in table.modules.values():
        assert (
            module.doc
            and all(v.doc for v in module.variables)
            and all(m.doc for m in module.mutations)
        ), module.name
        assert all(c.summary and c.handler for c in module.calls), module.name
        assert not [e.name for e in module.events if not e.meaning.endswith(".")]


@pytest.mark.parametrize("storey", STOREYS)
def test_each_storey_has_the_same_nouns(storey: str) -> None:
    found = {p.stem for p in (ROOT / storey).glob("*.py") if not p.stem.startswith("__")}
    assert found - NOUNS <= OTHERS[storey], "a file is called by its noun"


FEATURES = NOUNS | {
    "access",
    "authority",
    "captures",
    "disks",
    "heads",
    "logs",
    "remote",
    "slurm",
    "status",
    "thermal",
    "webhooks",
}


def test_each_feature_is_a_noun() -> None:
    found = {
        p.name for p in (ROOT / "layercake/features").iterdir() if (p / "__init__.py").exists()
    }
    assert len(found) > 15 and found <= FEATURES


def test_no_room_is_crowded() -> None:
    sizes = {
        str(d.relative_to(ROOT)): len(
            [p for p in d.glob("*.py") if not p.name.startswith(("__init__", "module_pb2"))]
        )
        for place in PRODUCT
        for d in [ROOT / place, *(ROOT / place).rglob("*")]
        if d.is_dir()
    }
    limit = {s: len(NOUNS | OTHERS[s]) for s in STOREYS} | {"pxe": 22, "powerman": 22}
    # A noun has files of the same names in each folder: feature, operations, views, ...
    limit |= {place: 14 for place in sizes if place.startswith("layercake/features/")}
    crowded = {place: n for place, n in sizes.items() if n > limit.get(place, 12)}
    assert not crowded


def test_every_event_kind_is_declared_once_and_named_nowhere_else() -> None:
    """One table: kinds are constants of the events.py files; no other file spells one."""
    kinds = standard().events
    assert len(kinds) > 80 and all(isinstance(kind, EventKind) for kind in kinds.values())
    spelled = [
        f"{path}:{node.lineno} {node.value}"
        for path, tree in trees(*PRODUCT)
        if path.name != "events.py"
        for node in strings(tree)
        if node.value in kinds
    ]
    elsewhere = [
        s for s in spelled if "commands.py" not in s and not s.startswith("layercake/cli/")
    ]
    assert not elsewhere, "use the constant"


def test_every_event_kind_is_told_somewhere() -> None:
    words = {
        word
        for place in PRODUCT
        for path in (ROOT / place).rglob("*.py")
        if path.name != "events.py"
        for word in re.findall(r"\w+", path.read_text())
    }
    made = [
        (path, node)
        for path, tree in trees(*PRODUCT)
        if path.name == "events.py"
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    ]
    constants = [
        (path, target.id)
        for path, node in made
        if ast.unparse(node.value).startswith("EventKind(")
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    unused = [f"{path}: {name}" for path, name in constants if name not in words]
    assert constants and not unused


def test_nothing_decides_by_the_text_of_an_error() -> None:
    """No comparison, no `in` and no startswith on what an error says: there are classes, enums and
    fields for that."""
    found = []
    for path, tree in trees(*PRODUCT, "vm-testbed"):
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("startswith", "endswith")
            ):
                suspects: list[ast.expr] = [node.func.value]
            elif isinstance(node, ast.Compare) and _with_a_text(node):
                suspects = [node.left, *node.comparators]
            else:
                continue
            if any(_says(s) for s in suspects):
                found.append(f"{path}:{node.lineno}")
    assert not found


def _with_a_text(node: ast.Compare) -> bool:
    """`in`, or a comparison with a text that stands in the code."""
    return any(isinstance(op, ast.In | ast.NotIn) for op in node.ops) or any(
        isinstance(c, ast.Constant) and isinstance(c.value, str)
        for c in (node.left, *node.comparators)
    )


def _says(node: ast.expr) -> bool:
    """error.message, error.hint, str(error)."""
    if isinstance(node, ast.Attribute) and node.attr in ("message", "hint"):
        return isinstance(node.value, ast.Name) and node.value.id in (
            "error",
            "refusal",
            "problem",
            "failure",
            "mistake",
        )
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("str", "repr")
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id in ("error", "refusal", "failure")
    )
