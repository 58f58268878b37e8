"""Programs that stand in texts, for guests and other processes, import what there is: no linter
reads them, and those of benchmarks are run seldom."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
"""Where texts are examples for what is checked."""
ROOT = HERE.parents[1]
ROOMS = ("docs", "imageapi", "layercake", "minos", "powerman", "pxe", "tests", "vm-testbed")
IMPORT = re.compile(
    r"^ *from ((?:imageapi|layercake|minos|powerman|pxe|tests)(?:\.\w+)*) import (\w+(?:, \w+)*)$",
    re.MULTILINE,
)


def texts(source: str) -> Iterator[str]:
    """The texts of a file, what is put together of an f-string among them."""
    for found in ast.walk(ast.parse(source)):
        if isinstance(found, ast.Constant) and isinstance(found.value, str):
            yield found.value


def imports(source: str) -> set[tuple[str, str]]:
    """(module, name) of what the programs in a file's texts import of ours."""
    return {
        (module, name)
        for text in texts(source)
        for module, names in IMPORT.findall(text)
        for name in names.split(", ")
    }


@cache
def names_of(module: str) -> frozenset[str] | None:
    """What can be imported from a module; None if there is none."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # nor the package that it would lie in
        return None
    if spec is None:
        return None
    inside = [Path(entry) for entry in spec.submodule_search_locations or ()]
    found = {path.stem for folder in inside for path in folder.iterdir()}
    if spec.origin is not None:
        for statement in ast.walk(ast.parse(Path(spec.origin).read_text())):
            match statement:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found.add(name)
                case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                    found.add(name)
                case ast.alias(name=name, asname=other):
                    found.add(other or name)
    return frozenset(found)


def is_there(module: str, name: str) -> bool:
    """Whether a module has something of this name."""
    found = names_of(module)
    return found is not None and name in found


def test_programs_in_texts_import_what_there_is() -> None:
    wanted = {
        (str(path.relative_to(ROOT)), *pair)
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if "node_modules" not in path.parts and path.parent != HERE
        for pair in imports(path.read_text())
    }
    assert len(wanted) > 20, "programs are found"
    assert [pair for pair in sorted(wanted) if not is_there(*pair[1:])] == []


def test_one_that_imports_what_is_gone_is_found() -> None:
    found = imports('GUEST = """\nfrom imageapi.node import mount, gone\n"""')
    assert found == {("imageapi.node", "mount"), ("imageapi.node", "gone")}
    assert is_there("imageapi.node", "mount") and not is_there("imageapi.node", "gone")
    assert not is_there("imageapi.node.attach.kinds", "Attachments")
    assert is_there("imageapi.node.attach.attachments", "Attachments")
