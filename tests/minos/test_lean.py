"""minos/lean/dataclasses.py does what the standard library's does, for all that a node imports."""

from __future__ import annotations

import copy
import dataclasses as standard
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from minos.build.builder import ENTRIES, ROOT
from minos.lean import dataclasses as lean

SHOW = """
import importlib, inspect, json, sys
sys.path[:0] = sys.argv[1:3]
for name in sys.argv[3:]:
    importlib.import_module(name)
def classes(cls):
    for sub in type.__subclasses__(cls):
        yield sub
        if sub is not type:
            yield from classes(sub)
found = {}
for cls in set(classes(object)):
    made = cls.__dict__.get("__dataclass_fields__")
    if made and cls.__module__.partition(".")[0] in ("minos", "layercake", "imageapi", "pxe", "powerman") \
            and getattr(sys.modules[cls.__module__], cls.__qualname__, None) is cls:
        signature = inspect.signature(cls.__init__).parameters.values()
        found[f"{cls.__module__}.{cls.__qualname__}"] = [
            [[f.name, f.repr, f.compare] for f in made.values()], [[p.name, str(p.kind), p.default is p.empty] for p in signature],
            list(cls.__dict__.get("__slots__", ["-"])), cls.__match_args__, cls.__hash__ is None,
            "__setattr__" in cls.__dict__, "__eq__" in cls.__dict__, "__repr__" in cls.__dict__, "__getstate__" in cls.__dict__]
import dataclasses
print(json.dumps([dataclasses.__file__, found]))
"""


def of_a_node(first: Path) -> tuple[str, dict[str, Any]]:
    argv = [sys.executable, "-sSB", "-c", SHOW, str(first), str(ROOT), *ENTRIES]
    file, found = json.loads(
        subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    )
    return file, found


def test_all_classes_of_a_node_are_the_same() -> None:
    (lean_file, ours), (file, theirs) = of_a_node(ROOT / "minos/lean"), of_a_node(ROOT)
    assert lean_file == str(ROOT / "minos/lean/dataclasses.py") != file
    assert len(theirs) > 50 and ours == theirs


def examples(of: ModuleType) -> tuple[Any, Any, Any]:
    @of.dataclass(frozen=True, slots=True)
    class Point:
        """Frozen."""

        x: int
        y: int = 2
        note: str = of.field(default="", compare=False, repr=False)

    @of.dataclass(slots=True)
    class Open:
        """Not frozen."""

        points: list[Any] = of.field(default_factory=list)
        at: Any = None

    @of.dataclass
    class Base:
        """With a dictionary, and a method of its own."""

        a: int
        b: int = 7

        def __post_init__(self) -> None:
            self.sum = self.a + self.b

        def __repr__(self) -> str:
            return f"<{self.a}>"

    @of.dataclass
    class Derived(Base):
        """A field more."""

        c: dict[str, Any] = of.field(default_factory=dict)

    return Point, Open, Derived


@pytest.mark.parametrize("of", [standard, lean], ids=["standard", "lean"])
def test_objects_behave_alike(of: ModuleType) -> None:
    point, opened, derived = examples(of)
    one = point(1, note="n")
    assert (
        one == point(1, 2, "other") != point(2)
        and one != (1, 2)
        and hash(one) == hash(point(1))
        and len({one, point(1)}) == 1
    )
    assert repr(one) == "examples.<locals>.Point(x=1, y=2)" and (one.x, one.y, one.note) == (
        1,
        2,
        "n",
    )
    with pytest.raises(of.FrozenInstanceError):
        one.x = 3
    with pytest.raises(of.FrozenInstanceError):
        del one.x
    assert copy.copy(one) == one == copy.deepcopy(one) and copy.copy(one).note == "n"
    assert of.replace(one, y=9) == point(1, 9) and [f.name for f in of.fields(point)] == [
        "x",
        "y",
        "note",
    ]
    both = opened([one, (point(3),)], {"k": point(4)})
    assert of.asdict(both) == {
        "points": [{"x": 1, "y": 2, "note": "n"}, ({"x": 3, "y": 2, "note": ""},)],
        "at": {"k": {"x": 4, "y": 2, "note": ""}},
    }
    assert (
        opened().points is not opened().points
        and opened.__hash__ is None
        and not hasattr(both, "__dict__")
    )
    both.at = 5
    assert both == opened(both.points, 5) and both != opened()
    third = derived(1, c={"k": 1})
    assert (third.sum, third.b, repr(third)) == (
        8,
        7,
        "examples.<locals>.Derived(a=1, b=7, c={'k': 1})",
    )
    assert (
        of.replace(third, b=1).sum == 2
        and derived(1) == derived(1)
        and derived.b == 7
        and not hasattr(derived, "c")
    )
    for wrong in (
        lambda: point(),
        lambda: point(1, z=2),
        lambda: of.replace(one, z=1),
        lambda: of.fields(3),
        lambda: hash(both),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_what_a_node_does_not_know_is_found_when_minos_is_built() -> None:
    with pytest.raises(TypeError):
        lean.dataclass(order=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="ClassVar"):
        lean.dataclass(type("Odd", (), {"__annotations__": {"x": "ClassVar[int]"}}))
