"""Puts a mutant in the place of what is tested: into functions that exist already, or into a
module before it is imported."""

from __future__ import annotations

import gc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from tests.mutate.mutants import Mutant


def swap(root: Path, mutant: Mutant) -> int:
    """Gives each function of the mutant's file that differs in it the mutant's code; how many.

    What was called while the file was imported has had its effect: such a mutant is for `Finder`.
    """
    file = root / mutant.path
    text = file.read_text()
    before = dict(_codes(compile(text, file, "exec", dont_inherit=True)))
    after = dict(_codes(compile(mutant.tree(text), file, "exec", dont_inherit=True)))
    swapped = 0
    for function in gc.get_objects():
        if not isinstance(function, FunctionType) or function.__code__.co_filename != str(file):
            continue
        place = (function.__code__.co_qualname, function.__code__.co_firstlineno)
        new = after.get(place)
        if new is not None and new != before.get(place):
            function.__code__ = new
            swapped += 1
    return swapped


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield (inner.co_qualname, inner.co_firstlineno), inner
            yield from _codes(inner)


class Finder:
    """Imports a mutant in the place of its file, for whoever asks for it by name."""

    def __init__(self, root: Path, mutant: Mutant) -> None:
        self._file = root / mutant.path
        self._mutant = mutant
        self._name = mutant.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As `importlib` asks."""
        if fullname != self._name:
            return None
        loader = _Loader(fullname, self._file, self._mutant)
        return importlib.util.spec_from_file_location(fullname, self._file, loader=loader)

    def install(self) -> None:
        """From now on; the module may not have been imported yet."""
        if self._name in sys.modules:
            raise RuntimeError(f"cannot change {self._name}: it has been imported already")
        sys.meta_path.insert(0, self)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, file: Path, mutant: Mutant) -> None:
        super().__init__(fullname, str(file))
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        text = Path(self.path).read_text()
        return compile(self._mutant.tree(text), self.path, "exec", dont_inherit=True)
