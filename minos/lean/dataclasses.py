"""The part of the standard library's `dataclasses` that our own code uses; on a node it stands in
for that.

The standard one writes and compiles five methods for each class, and imports the parser and the
disassembler: half of the time that Python takes to start on an emulated processor. This one
compiles __init__ alone, the other methods are the same for all classes. What it does not know is a
TypeError, which shows when minOS is built: closure.py imports all that a node does.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

MISSING: Any = object()
FIELDS = "__dataclass_fields__"
SHOWN = "__dataclass_shown__"
COMPARED = "__dataclass_compared__"


class FrozenInstanceError(AttributeError):
    """A field of a frozen object cannot be set."""


class Field:
    """One field of a class."""

    __slots__ = ("compare", "default", "default_factory", "name", "repr")

    def __init__(self, default: Any, default_factory: Any, repr: bool, compare: bool) -> None:
        self.name = ""
        self.default = default
        self.default_factory = default_factory
        self.repr = repr
        self.compare = compare


def field(
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    repr: bool = True,
    compare: bool = True,
) -> Any:
    """What a class says of one of its fields."""
    return Field(default, default_factory, repr, compare)


def dataclass(cls: type | None = None, /, *, frozen: bool = False, slots: bool = False) -> Any:
    """Makes methods of a class's fields."""
    return (
        _make(cls, frozen, slots) if cls is not None else lambda given: _make(given, frozen, slots)
    )


def fields(given: Any) -> tuple[Field, ...]:
    """The fields of a dataclass or of one of its objects, in their order. Raises TypeError."""
    try:
        return tuple(getattr(given, FIELDS).values())
    except AttributeError:
        raise TypeError("must be called with a dataclass type or instance") from None


def replace(given: Any, /, **changes: Any) -> Any:
    """Another object of the class, with some of its fields changed. Raises TypeError for what is no
    field."""
    return given.__class__(**{f.name: getattr(given, f.name) for f in fields(given)} | changes)


def asdict(given: Any) -> dict[str, Any]:
    """{name: value}, of the dataclasses within it too."""
    return {f.name: _plain(getattr(given, f.name)) for f in fields(given)}


def _plain(value: Any) -> Any:
    if hasattr(type(value), FIELDS):
        return asdict(value)
    if isinstance(value, dict):
        return {_plain(k): _plain(v) for k, v in value.items()}
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def _make(cls: type, frozen: bool, slots: bool) -> type:
    own = cls.__dict__
    known: dict[str, Field] = {}
    for base in cls.__mro__[:0:-1]:
        known |= base.__dict__.get(FIELDS, {})
    new = _own_fields(cls)
    fields = known | new
    members: dict[str, Any] = {n: f.default for n, f in new.items() if f.default is not MISSING}
    members |= {FIELDS: fields, "__match_args__": tuple(fields)}
    members[SHOWN] = tuple(n for n, f in fields.items() if f.repr)
    members[COMPARED] = _compared([n for n, f in fields.items() if f.compare])
    methods = _methods(cls, fields, frozen, slots)
    # A class that has __eq__ and says nothing of its hash has None there.
    members |= {name: method for name, method in methods.items() if own.get(name) is None}
    if slots:
        return _with_slots(cls, new, members)
    for name in new:
        if isinstance(own.get(name), Field) and name not in members:
            delattr(cls, name)
    for name, value in members.items():
        setattr(cls, name, value)
    return cls


def _own_fields(cls: type) -> dict[str, Field]:
    """The fields that a class adds to those of its bases. Raises TypeError."""
    new: dict[str, Field] = {}
    own = cls.__dict__
    for name, annotation in own.get("__annotations__", {}).items():
        if annotation.startswith(("ClassVar", "InitVar", "KW_ONLY")):
            raise TypeError(
                f"cannot make {cls.__qualname__} on a node: {annotation} is not known there"
            )
        default = own.get(name, MISSING)
        if not isinstance(default, Field):
            default = Field(default, MISSING, repr=True, compare=True)
        default.name = name
        new[name] = default
    return new


def _methods(cls: type, fields: dict[str, Field], frozen: bool, slots: bool) -> dict[str, Any]:
    methods: dict[str, Any] = {
        "__init__": _init(cls, fields.values(), frozen),
        "__repr__": _repr,
        "__eq__": _eq,
        "__hash__": None,
    }
    if frozen:
        methods |= {"__hash__": _hash, "__setattr__": _set, "__delattr__": _delete}
    if frozen and slots:
        methods |= {"__getstate__": _state, "__setstate__": _restore}
    return methods


def _with_slots(cls: type, new: dict[str, Field], members: dict[str, Any]) -> type:
    """The class made once more: slots cannot be added to one that is there."""
    left_out = {*new, "__dict__", "__weakref__"}
    rest = {n: v for n, v in cls.__dict__.items() if n not in left_out}
    taken = {s for base in cls.__mro__[1:] for s in base.__dict__.get("__slots__", ())}
    rest |= {n: v for n, v in members.items() if n not in new}
    rest["__slots__"] = tuple(n for n in members[FIELDS] if n not in taken)
    rest["__qualname__"] = cls.__qualname__
    return type(cls)(cls.__name__, cls.__bases__, rest)


def _init(cls: type, all_of: Any, frozen: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    parameters = ["self"]
    lines = []
    for f in all_of:
        name = value = f.name
        if f.default_factory is not MISSING:
            scope[f"_new_{name}"] = f.default_factory
            parameters.append(f"{name}=_missing")
            value = f"_new_{name}() if {name} is _missing else {name}"
        elif f.default is not MISSING:
            scope[f"_is_{name}"] = f.default
            parameters.append(f"{name}=_is_{name}")
        else:
            parameters.append(name)
        lines.append(f" _set(self, '{name}', {value})" if frozen else f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    # Names of our own fields.
    body = "\n".join(lines or [" pass"])
    exec(f"def __init__({', '.join(parameters)}):\n{body}", scope)  # noqa: S102
    init: Callable[..., None] = scope["__init__"]
    return init


def _compared(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda given: ()


def _repr(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in getattr(self, SHOWN))
    return f"{type(self).__qualname__}({values})"


def _eq(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = getattr(self.__class__, COMPARED)
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(getattr(self.__class__, COMPARED)(self))


def _set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in getattr(self, FIELDS)]


def _restore(self: Any, state: list[Any]) -> None:
    for name, value in zip(getattr(self, FIELDS), state, strict=True):
        object.__setattr__(self, name, value)
