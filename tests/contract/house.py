"""Measures the structure of the product from its own files: `make house` prints the figures.

statements are counted without docstrings and imports; wide lines have more than 100 columns;
generic names are functions that a search cannot find; golf is several names assigned in one line;
complex functions have a cyclomatic complexity over 12; a knot is a set of children of one folder
that import each other in a circle. Of the class Head its attributes, its lambdas and the imports of
ours in its file are counted; what is assigned late is an attribute of another object, set by the
head's package; twins are answers with the very fields of another class.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("layercake", "pxe", "powerman", "imageapi", "minos")
COLUMNS = 100
COMPLEXITY = 12
LENGTH = 60
GENERIC = frozenset(
    [
        "take",
        "look",
        "ask",
        "tell",
        "put",
        "heard",
        "said",
        "told",
        "found",
        "keep",
        "want",
        "say",
        "has",
        "goes",
        "gone",
        "word",
        "words",
        "made",
        "kept",
        "here",
        "happen",
        "see",
        "seen",
        "settle",
        "tidy",
    ]
)
Function = ast.FunctionDef | ast.AsyncFunctionDef
_PUBLIC = frozenset(["_", "_replace", "_asdict", "_fields", "_make", "_exit"])
"""In spite of their underscore: those of collections.namedtuple, and os._exit, by which a forked
child ends without tidying up what is its parent's."""
_OWN = ("self", "cls", "super()")
_BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.comprehension,
    ast.match_case,
)


@dataclass(frozen=True)
class Source:
    """One file of the product: its path below the root, its dotted name, text and tree, and all
    nodes of that, which are walked through once only."""

    path: Path
    module: str
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    def functions(self) -> Iterator[Function]:
        """All its functions and methods."""
        for node in self.nodes:
            if isinstance(node, Function):
                yield node


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Makes millions of objects that stay without looking through them again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def sources(root: Path = ROOT) -> list[Source]:
    """The product's files, generated ones left out."""
    with without_collection():
        return list(_sources(root))


def _sources(root: Path) -> Iterator[Source]:
    for place in PRODUCT:
        for path in sorted((root / place).rglob("*.py")):
            if "_pb2" in path.name:
                continue
            parts = list(path.relative_to(root).with_suffix("").parts)
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text()
            tree = ast.parse(text)
            yield Source(path.relative_to(root), name, text, tree, tuple(ast.walk(tree)))


def statements(nodes: Iterable[ast.AST]) -> int:
    """Statements without docstrings and imports."""
    return sum(
        isinstance(node, ast.stmt)
        and not isinstance(node, ast.Import | ast.ImportFrom)
        and not _is_docstring(node)
        for node in nodes
    )


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def complexity(function: Function) -> int:
    """Its cyclomatic complexity: one, and one more for each branch."""
    total = 1
    for node in ast.walk(function):
        total += isinstance(node, _BRANCHES)
        if isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
    return total


def imports(source: Source, known: frozenset[str]) -> Iterator[str]:
    """The modules that are imported as the file is; those of a function or for types are not."""
    for node in _at_import(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in known else node.module


def _at_import(parent: ast.AST) -> Iterator[ast.AST]:
    """The statements that are executed as a file is imported."""
    for node in ast.iter_child_nodes(parent):
        for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if for_types or isinstance(node, Function | ast.expr):
            continue
        yield node
        yield from _at_import(node)


def folders(files: list[Source]) -> list[str]:
    """The dotted names of all folders."""
    known: set[str] = set()
    for source in files:
        parts = source.module.split(".")
        known.update(".".join(parts[:depth]) for depth in range(1, len(parts)))
    return sorted(known)


def knots(files: list[Source]) -> dict[str, list[str]]:
    """{folder: its children that import each other in a circle, at any distance}; none is best."""
    known = frozenset(source.module for source in files)
    wants = {source.module: sorted(set(imports(source, known))) for source in files}
    found = {}
    for folder in folders(files):
        graph: defaultdict[str, set[str]] = defaultdict(set)
        for module, targets in wants.items():
            child = _child(folder, module)
            for target in targets if child else ():
                other = _child(folder, target)
                if other and other != child:
                    graph[child].add(other)
        if circle := sorted(child for child in graph if child in _reached(graph, child)):
            found[folder] = circle
    return found


def _child(folder: str, module: str) -> str:
    prefix = folder + "."
    return module.removeprefix(prefix).split(".")[0] if module.startswith(prefix) else ""


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for child in graph.get(waiting.pop(), ()):
            if child not in seen:
                seen.add(child)
                waiting.append(child)
    return seen


def is_private(name: str) -> bool:
    """Whether a name belongs to its module or its object."""
    return name.startswith("_") and not name.startswith("__") and name not in _PUBLIC


def private_uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every use of somebody else's private part: (line, what)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if ast.unparse(node.value) not in _OWN:
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if is_private(alias.name):
                    module = f"{'.' * node.level}{node.module or ''}"
                    yield node.lineno, f"from {module} import {alias.name}"


def private_in_tests(root: Path = ROOT) -> int:
    """How often tests use private parts; of what is generated nothing is counted."""
    files = [path for path in (root / "tests").rglob("*.py") if "_pb2" not in path.name]
    return sum(len(list(private_uses(ast.parse(path.read_text())))) for path in files)


def _golf(nodes: Iterable[ast.AST]) -> int:
    return sum(
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
        for node in nodes
    )


def _sizes(files: list[Source]) -> tuple[int, int]:
    """(methods of the largest class, arguments of the widest __init__)."""
    methods = [0]
    arguments = [0]
    for source in files:
        for node in source.nodes:
            if not isinstance(node, ast.ClassDef):
                continue
            own = [item for item in node.body if isinstance(item, Function)]
            methods.append(len(own))
            arguments += [
                len(item.args.args) + len(item.args.kwonlyargs) - 1
                for item in own
                if item.name == "__init__"
            ]
    return max(methods), max(arguments)


def head_figures(files: list[Source]) -> dict[str, int]:
    """How much the class Head has to do with, and what is put into other objects later."""
    ours = [source for source in files if source.module.startswith("layercake.head.")]
    head = next(s for s in ours if any(_is_class(node, "Head") for node in s.nodes))
    (body,) = (node for node in head.nodes if _is_class(node, "Head"))
    own = [node for node in ast.walk(body) if isinstance(node, ast.Attribute)]
    return {
        "head_attributes": len(
            {n.attr for n in own if _is_set(n) and ast.unparse(n.value) == "self"}
        ),
        "head_imports": sum(name.split(".")[0] in PRODUCT for name in imports(head, frozenset())),
        "head_lambdas": sum(isinstance(node, ast.Lambda) for node in ast.walk(body)),
        "assigned_late": sum(
            isinstance(node, ast.Attribute) and _is_set(node) and ast.unparse(node.value) != "self"
            for source in ours
            for node in source.nodes
        ),
    }


def _is_class(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == name


def _is_set(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)


def answer_twins(files: list[Source]) -> list[str]:
    """The classes of answers that have the fields of another class, by name and type: two at
    least."""
    known: defaultdict[str, list[tuple[Source, str]]] = defaultdict(list)
    for source in files:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                fields = [
                    ast.unparse(n.target) + ":" + ast.unparse(n.annotation)
                    for n in node.body
                    if isinstance(n, ast.AnnAssign)
                ]
                if len(fields) > 1:
                    known[";".join(sorted(fields))].append((source, node.name))
    return [
        f"{source.module}.{name}"
        for same in known.values()
        for source, name in same
        if len(same) > 1 and any(part.startswith("answers") for part in source.path.parts)
    ]


def figures(files: list[Source], root: Path = ROOT) -> dict[str, object]:
    """All figures of the files of a tree, by name."""
    functions = [f for source in files for f in source.functions()]
    methods, arguments = _sizes(files)
    names = Counter(f.name for f in functions if f.name.strip("_") in GENERIC)
    return {
        "files": len(files),
        "lines": sum(len(source.text.splitlines()) for source in files),
        "statements": sum(statements(source.nodes) for source in files),
        "wide_lines": sum(len(li) > COLUMNS for s in files for li in s.text.splitlines()),
        "generic_names": names.total(),
        "golf": sum(_golf(source.nodes) for source in files),
        "complex_functions": sum(complexity(f) > COMPLEXITY for f in functions),
        "long_functions": sum((f.end_lineno or 0) - f.lineno >= LENGTH for f in functions),
        "long_files": sum(len(source.text.splitlines()) > 500 for source in files),
        "most_methods": methods,
        "most_arguments": arguments,
        "private_in_tests": private_in_tests(root),
        **head_figures(files),
        "answer_twins": len(answer_twins(files)),
        "knots": {folder: len(circle) for folder, circle in knots(files).items()},
    }


if __name__ == "__main__":
    place = Path(sys.argv[1]) if sys.argv[1:] else ROOT
    print(json.dumps(figures(sources(place), place)))
