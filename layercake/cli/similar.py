"""Which commands somebody may have meant by a word that is none: all of them are looked at, which
takes a moment, and only for that."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

import click

MOST = 4
_NEAR = 0.81


def similar(root: click.Group, word: str, group: str) -> list[str]:
    """Commands such as "layercake node exec" that a word may mean: those of that name, else those
    of nearly that name, else those whose help has the word. It stood behind `group`, "layercake
    node": what that has comes first."""
    known = list(_commands(root, click.Context(root), ("layercake",)))
    own = [one for one in known if " ".join(one[0]).startswith(f"{group} ")]
    for commands in (own, known):
        for means in (_has_name, _is_near, _is_in_help):
            if found := [" ".join(path) for path, text in commands if means(word, path, text)]:
                return sorted(found, key=len)[:MOST]
    return []


def _commands(
    group: click.Group, context: click.Context, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        if one is None or one.hidden or one.deprecated:
            continue
        yield (*path, name), one.help or ""
        if isinstance(one, click.Group):
            yield from _commands(one, context, (*path, name))


def _has_name(word: str, path: tuple[str, ...], _: str) -> bool:
    return word == path[-1]


def _is_near(word: str, path: tuple[str, ...], _: str) -> bool:
    return difflib.SequenceMatcher(None, word, path[-1]).ratio() >= _NEAR


def _is_in_help(word: str, _: tuple[str, ...], help_text: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", help_text, re.IGNORECASE) is not None
