"""What a caller who is bound to groups may write into the entries of his nodes. An entry is not
only about its node: it names secrets, files, images, names of the DNS, and where a BMC is, which
are the site's. All that is not known to be about the node alone is for the whole
site's administrators, unless config.yaml hands it to the group. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from imageapi.spec.objects import secrets_of
from layercake.fleet.store import WantedImage
from layercake.inventory.changes import Change, is_empty
from layercake.kraken.errors import Refused

_OWN = re.compile(
    r"state|console|kernel_args|boot_timeout|remedy|adopt|priority|labels|authorized_keys"
    r"|(?:roll|thermal|uinit|disks|minos)\..*"
    r"|files\..*\.(?:content|owner|group|mode|on_change|leave)"
)
"""The fields that say something of the node alone."""
_NAMES = (
    (re.compile(r"images"), "images"),
    (re.compile(r"aliases"), "aliases"),
    (re.compile(r"files\..*\.(?:source|tree)"), "files"),
    (re.compile(r"files\..*\.secret"), "secrets"),
)
"""The fields that name what is the site's: (field, the list in `Delegated`)."""


class Delegated(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What those who are bound to a group may name, by patterns of fnmatch(3)."""

    images: Annotated[
        list[str], Meta(description="Images that need secrets; all others may be named anyway.")
    ] = []
    files: Annotated[
        list[str], Meta(description="Files, templates and trees in the directory of files.")
    ] = []
    secrets: Annotated[
        list[str], Meta(description="Files in the directory of secrets, for `files` of nodes.")
    ] = []
    aliases: Annotated[list[str], Meta(description="Names in the DNS.")] = []


class Delegations:
    """What is delegated to whom."""

    def __init__(self, by_group: Mapping[str, Delegated]) -> None:
        self._by_group = by_group

    def refuse_change(
        self, groups: Collection[str] | None, change: Change, templates: Collection[str] = ()
    ) -> None:
        """Raises Refused for a change of an entry that somebody bound to these groups may not
        make; None is the whole site's administrator. `templates` are the keys of files that are
        templates in the new entry itself: templates see all nodes, and name secrets."""
        if groups is None:
            return
        for field, (before, now) in change.fields.items():
            if field.removeprefix("files.").rpartition(".")[0] in templates:
                own = False
            elif field.startswith("files.") and field.endswith(".template"):
                own = is_empty(now)  # it is no template any more
            else:
                own = _OWN.fullmatch(field) is not None
            if own or self._is_delegated(groups, field, before, now):
                continue
            raise Refused(
                f"cannot change {field} of {change.node}: it is not about the node alone, and "
                f"not delegated to the groups {', '.join(groups)}",
                hint="an administrator of the whole site changes it, or hands it to a group by "
                "`delegated` in config.yaml",
            )

    def refuse_images(self, groups: Collection[str] | None, images: Iterable[WantedImage]) -> None:
        """Raises Refused for images whose secrets are not for nodes of these groups."""
        for image in images if groups is not None else ():
            if secrets_of(image.container) and not self._matches(groups, "images", image.name):
                raise Refused(
                    f"cannot use image {image.name}: it needs secrets, and is not delegated to "
                    f"the groups {', '.join(groups or ())}",
                    hint="an administrator of the whole site uses it, or hands it to a group by "
                    "`delegated` in config.yaml",
                )

    def _is_delegated(
        self, groups: Collection[str], field: str, before: object, now: object
    ) -> bool:
        """Whether a field names no more of the site than before, or what is handed to a group."""
        kind = next((kind for of, kind in _NAMES if of.fullmatch(field)), None)
        if kind is None:
            return False
        if kind == "images":
            return True  # by what is in them: refuse_images
        new = set(_texts(now)) - set(_texts(before))
        return is_empty(now) or all(self._matches(groups, kind, text) for text in new)

    def _matches(self, groups: Collection[str] | None, kind: str, name: str) -> bool:
        own = (self._by_group[group] for group in groups or () if group in self._by_group)
        return any(fnmatchcase(name, pattern) for one in own for pattern in getattr(one, kind))


def _texts(value: Any) -> Iterator[str]:
    """The words that a value of an entry names."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    else:
        yield str(value)
