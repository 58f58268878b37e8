"""Names that the shell completes: nodes, groups, images, boot sets and profiles, as the head has
them now.

A shell waits for it: a head that does not answer soon completes nothing, and says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from layercake.kraken.errors import LayercakeError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

ANSWER_S = 2.0
MOST = 500
"""Names that a shell is given; more are of no use to anybody."""


def _nodes(get: Callable[..., object]) -> Iterable[str]:
    return _of(get("/v1/nodes", fields="name", timeout=ANSWER_S), "nodes")


def _groups(get: Callable[..., object]) -> Iterable[str]:
    answer = get("/v1/nodes", fields="groups", timeout=ANSWER_S)
    views = answer["nodes"] if isinstance(answer, dict) else []
    return {group for view in views for group in view["groups"]}


def _ranges(get: Callable[..., object]) -> Iterable[str]:
    return [*_nodes(get), "@all", *(f"@{group}" for group in sorted(_groups(get)))]


def _images(get: Callable[..., object]) -> Iterable[str]:
    return _of(get("/v1/images", timeout=ANSWER_S), "images")


def _sets(get: Callable[..., object]) -> Iterable[str]:
    return _of(get("/v1/boot", timeout=ANSWER_S), "sets")


def _profiles(get: Callable[..., object]) -> Iterable[str]:
    return {name for name in _of(get("/v1/boot", timeout=ANSWER_S), "sets", "profile") if name}


def _of(answer: object, key: str, field: str = "name") -> Iterable[str]:
    return [one[field] for one in answer[key]] if isinstance(answer, dict) else []


_KINDS: dict[str, Callable[[Callable[..., object]], Iterable[str]]] = {
    "RANGE": _ranges,
    "NODE": _nodes,
    "IMAGE": _images,
    "SET": _sets,
    "PROFILE": _profiles,
    "GROUP": _groups,
}
_BY_NAME = {
    "nodes": "RANGE",
    "range_": "RANGE",
    "node": "NODE",
    "groups": "GROUP",
    "profile": "PROFILE",
}
"""What parameters stand for that say nothing of it themselves, by their names in the code."""
_OF_GROUP = {"node": "NODE", "image": "IMAGE"}
"""What `name` stands for in the commands of a group."""


class Name(click.types.StringParamType):
    """A text of the kinds of a metavar ("PROFILE|SET")."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self._kinds = tuple(kinds)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so; of a range, its last part."""
        from click.shell_completion import (
            CompletionItem,
        )  # here, and below: commands need none of it

        from layercake.client.http import Client
        from layercake.client.target import DEFAULT_SOCKET, Target

        parameters = ctx.find_root().params
        target = [
            str(parameters.get(name) or "")
            for name in ("socket", "url", "token_file", "ca", "cert")
        ]
        before, comma, last = (
            incomplete.rpartition(",") if "RANGE" in self._kinds else ("", "", incomplete)
        )
        try:
            get = Client(Target(target[0] or DEFAULT_SOCKET, *target[1:])).get
            names = [name for kind in self._kinds for name in _KINDS[kind](get)]
        except (LayercakeError, KeyError, TypeError):
            return []
        candidates = [
            name for name in dict.fromkeys(names) if name.startswith(last) and name.isprintable()
        ]
        return [CompletionItem(before + comma + name) for name in candidates[:MOST]]


def _kinds_of(group: click.Group | None, parameter: click.Parameter) -> list[str]:
    """The kinds of names that a parameter stands for: by its metavar, its group, or its name."""
    metavar = (parameter.metavar or "").strip("[].")
    kinds = [kind for kind in metavar.split("|") if kind in _KINDS]
    if kinds:
        return kinds
    kind = _BY_NAME.get(parameter.name or "")
    if group is not None and parameter.name == "name":
        kind = _OF_GROUP.get(group.name or "") or kind
    return [kind] if kind else []


def complete(group: click.Group | None, command: click.Command) -> None:
    """Has the parameters of a command complete that stand for such names."""
    for parameter in command.params:
        kinds = _kinds_of(group, parameter)
        if kinds and type(parameter.type) is click.types.StringParamType:
            parameter.type = Name(kinds)
