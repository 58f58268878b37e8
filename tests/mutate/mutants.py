"""The mutants of a file: each is the file with one small fault in it.

A comparison is turned round or moves its border, a condition is negated, a constant is another, a
call or an assignment to an attribute or an item is left out, a result is none, an operator is
another. Annotations, docstrings, assertions, what only a type checker reads, and texts that only
the reference shows (`HIDDEN`) have no mutants.
"""

from __future__ import annotations

import ast
import copy
import difflib
import hashlib
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
HIDDEN = frozenset(["doc", "description", "summary", "help", "title"])
"""Arguments whose texts are only in the reference, which tests/docs compares with the code."""
WIRING = frozenset(["feature.py", "routes.py", "commands.py", "answers.py", "events.py"])
"""Of a feature: tables, which other tests compare with what is served, and with the reference."""
WIDE = 200
NAMES = frozenset(["__all__", "__slots__"])


@dataclass(frozen=True)
class Mutant:
    """One fault: where it is, and how to make it."""

    path: str
    """Of the file, below the root."""
    scope: str
    """The qualified name of the function, as a code object has it; of the class, or empty, for
    what runs when the file is imported."""
    late: bool
    """It is in the body of a function, and so need not be there when the file is imported."""
    line: int
    change: str
    """What it was, and what it is."""
    nth: int
    """Which of the equal changes in the same scope."""
    site: int
    """Which node of the tree, in the order of `ast.walk`, and which way it is changed."""
    way: int

    @property
    def key(self) -> str:
        """Its name in the record: the same as long as its scope and its change are."""
        return f"{self.path} {self.scope} {self.nth} {self.change}"

    def rank(self, seed: int) -> str:
        """Samples have those of the lowest rank: a larger sample has all of a smaller one."""
        return hashlib.blake2b(f"{seed} {self.key}".encode(), digest_size=8).hexdigest()

    def tree(self, text: str) -> ast.Module:
        """The file's tree with the fault, out of the file's text."""
        tree = ast.parse(text)
        target = list(ast.walk(tree))[self.site]
        replacement = list(_replacements(target))[self.way]
        _Replace(target, replacement).visit(tree)
        return ast.fix_missing_locations(tree)

    def diff(self, text: str) -> str:
        """The fault as a unified diff of the statement that has it, as `ast.unparse` writes it; of
        a long one only what was changed."""
        before = ast.unparse(ast.parse(text)).splitlines()
        after = ast.unparse(self.tree(text)).splitlines()
        changed = [
            f"{line[0]} {line[1:].strip()}"
            for line in difflib.unified_diff(before, after, n=0, lineterm="")
            if line[:1] in "+-" and line[:3] not in ("+++", "---") and len(line) < WIDE
        ]
        changed.append(f"  ({textwrap.shorten(self.change, 300)})")
        return "\n".join([f"{self.path}:{self.line} in {self.scope or 'the module'}", *changed])


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, replacement: ast.AST) -> None:
        self._target = target
        self._replacement = ast.copy_location(replacement, target)

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._target:
            return self._replacement
        self.generic_visit(node)
        return node


def mutants(path: str, text: str) -> list[Mutant]:
    """All mutants of a file, in the order of its lines."""
    tree = ast.parse(text)
    places = dict(_places(tree, "", False))
    found: list[Mutant] = []
    for site, node in enumerate(ast.walk(tree)):
        if id(node) not in places:
            continue
        scope, late = places[id(node)]
        for way, replacement in enumerate(_replacements(node)):
            change = f"{_shown(node)} -> {_shown(replacement)}"
            line = getattr(node, "lineno", 0)
            found.append(Mutant(path, scope, late, line, change, 0, site, way))
    return _numbered(sorted(found, key=lambda mutant: (mutant.line, mutant.site, mutant.way)))


def _numbered(found: list[Mutant]) -> list[Mutant]:
    seen: Counter[str] = Counter()
    numbered = []
    for mutant in found:
        numbered.append(replace(mutant, nth=seen[mutant.key]))
        seen[mutant.key] += 1
    return numbered


def _shown(node: ast.AST) -> str:
    """Its source; of a branch only what it depends on."""
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return f"if {ast.unparse(node.test)}"
    return " ".join(ast.unparse(node).split())


def _places(node: ast.AST, scope: str, late: bool) -> Iterator[tuple[int, tuple[str, bool]]]:
    """(id, (scope, late)) of each node that may be changed."""
    for field, value in ast.iter_fields(node):
        if _is_skipped(node, field):
            continue
        inner, inner_late = scope, late
        if isinstance(node, ast.ClassDef) and field == "body":
            inner = f"{scope}.{node.name}".lstrip(".")
        elif isinstance(node, Function) and field == "body" and not late:
            inner, inner_late = f"{scope}.{node.name}".lstrip("."), True
        elif isinstance(node, ast.Lambda) and field == "body" and not late:
            inner, inner_late = f"{scope}.<lambda>".lstrip("."), True
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_for_readers(child, node):
                yield id(child), (inner, inner_late)
                yield from _places(child, inner, inner_late)


def _is_skipped(node: ast.AST, field: str) -> bool:
    if field in ("annotation", "returns", "decorator_list", "bases"):
        return True
    if isinstance(node, ast.FormattedValue):
        return field != "value"
    return isinstance(node, ast.ClassDef) and field == "keywords"


def _is_for_readers(node: ast.AST, parent: ast.AST) -> bool:
    """Docstrings, assertions, imports, and what only people or a type checker read."""
    if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal):
        return True
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.dump(node.test)
    if isinstance(node, ast.Assign):
        return any(isinstance(t, ast.Name) and t.id in NAMES for t in node.targets)
    if isinstance(node, ast.AnnAssign):
        return "TypeAlias" in ast.dump(node.annotation)
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Name) and node.value.id == "Literal"
    if isinstance(node, ast.Constant) and isinstance(parent, ast.JoinedStr):
        return True  # the text as a whole is changed
    if isinstance(node, ast.keyword):
        return node.arg in HIDDEN
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    if isinstance(node, ast.Compare):
        yield from _comparisons(node)
    elif isinstance(node, ast.BoolOp):
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield ast.BoolOp(other, node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATORS:
        changed = copy.copy(node)
        changed.op = OPERATORS[type(node.op)]()
        yield changed
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.JoinedStr):
        yield ast.JoinedStr([ast.Constant("XX"), *node.values])
    elif isinstance(node, ast.Return):
        yield from _results(node)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield from _conditions(node)
    elif isinstance(node, ast.Break | ast.Continue):
        yield ast.Continue() if isinstance(node, ast.Break) else ast.Break()
    elif _has_effect(node):
        yield ast.Pass()


def _comparisons(node: ast.Compare) -> Iterator[ast.AST]:
    for index, operator in enumerate(node.ops):
        changed = copy.copy(node)
        changed.ops = list(node.ops)
        changed.ops[index] = COMPARISONS[type(operator)]()
        yield changed


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value + 1)
    elif isinstance(value, str):
        yield ast.Constant("XX" + value)
    elif isinstance(value, bytes):
        yield ast.Constant(b"XX" + value)


def _results(node: ast.Return) -> Iterator[ast.AST]:
    value = node.value
    if value is None or isinstance(value, ast.Constant | ast.Compare | ast.UnaryOp | ast.BoolOp):
        return  # changed where it is
    yield ast.Return(ast.Constant(None))


def _conditions(node: ast.If | ast.While | ast.IfExp) -> Iterator[ast.AST]:
    if isinstance(node.test, ast.Compare | ast.UnaryOp | ast.Constant):
        return  # changed where it is
    changed = copy.copy(node)
    changed.test = ast.UnaryOp(ast.Not(), node.test)
    yield changed


def _has_effect(node: ast.AST) -> bool:
    """A statement that can be left out without another name that is missing."""
    if isinstance(node, ast.Expr):
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        return isinstance(value, ast.Call)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return isinstance(node, ast.Delete)


def read(root: Path, paths: tuple[str, ...]) -> dict[str, str]:
    """{file below the root: its text} of files, and of those of folders that decide something."""
    found = {}
    for name in paths:
        path = root / name
        inside = [file for file in sorted(path.glob("*.py")) if file.name not in WIRING]
        for file in inside if path.is_dir() else [path]:
            found[str(file.relative_to(root))] = file.read_text()
    return found
