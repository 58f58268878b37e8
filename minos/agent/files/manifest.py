"""What the head says of the node's files, checked before anything is done with it."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from layercake.base.text import first_few
from layercake.kraken.errors import OperationFailed

MINOS = "minos"
METADATA = "metadata"
METADATA_OF = "metadata@"
"""What a target begins with that is what the metadata service says to one image."""
ALL = "*"
_ACTIONS = ("", "write", "restart")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file (layercake.features.files.entry): for which images, where, and what is in it.
    `error`: the head could not make it."""

    targets: tuple[str, ...]
    path: str
    data: bytes = b""
    digest: str = ""
    mode: int = 0o644
    owner: str = "root"
    group: str = "root"
    on_change: str = ""
    beside: bool = False
    within: str = ""
    directory: int = 0o755
    leave: bool = False
    error: str = ""

    def is_for(self, target: str) -> bool:
        """Whether it is for this image, for minOS, or for the metadata service."""
        if target in (MINOS, METADATA) or target.startswith(METADATA_OF):
            return target in self.targets
        if not {MINOS, METADATA}.isdisjoint(self.targets):
            return target in self.targets
        return (
            ALL in self.targets
            or target in self.targets
            or target.partition(":")[0] in self.targets
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of them, as of `mark`."""

    mark: str
    entries: tuple[Entry, ...]

    def chosen(self, target: str) -> dict[str, Entry]:
        """What an image (or minOS) gets: {path: entry}. Of several for one path it is the last;
        none where it is left."""
        by_path = {entry.path: entry for entry in self.entries if entry.is_for(target)}
        return {path: entry for path, entry in by_path.items() if not entry.leave}

    def metadata(self) -> tuple[dict[str, bytes], dict[str, dict[str, bytes]]]:
        """What the metadata service says to all images, and what besides to some: {image: {path:
        data}}."""
        images = {
            target.removeprefix(METADATA_OF)
            for entry in self.entries
            for target in entry.targets
            if target.startswith(METADATA_OF)
        }
        return self._data(METADATA), {one: self._data(METADATA_OF + one) for one in images}

    def _data(self, target: str) -> dict[str, bytes]:
        return {path: one.data for path, one in self.chosen(target).items() if not one.error}

    def over(self, before: Manifest | None) -> Manifest:
        """The same, where what the head could not make is as it was before, if it was there."""
        if before is None or not any(entry.error for entry in self.entries):
            return self
        had = {(e.targets, e.path): e for e in before.entries if not e.error}
        return Manifest(
            self.mark,
            tuple(had.get((e.targets, e.path), e) if e.error else e for e in self.entries),
        )


def parse(document: object) -> Manifest:
    """A manifest from its wire form. Raises OperationFailed."""
    try:
        if not isinstance(document, Mapping) or not isinstance(document["mark"], str):
            raise TypeError("no mark")
        return Manifest(document["mark"][:64], tuple(map(_entry, document["files"])))
    except (KeyError, TypeError, ValueError) as error:
        raise OperationFailed(
            f"cannot take the node's files: what the head says is not as agreed: {error!r}",
            hint="are head and minOS of the same version?",
        ) from None


def _entry(data: Mapping[str, Any]) -> Entry:
    targets = tuple(map(str, data["to"]))
    path = data["path"]
    if (
        not isinstance(path, str)
        or not path.startswith("/")
        or "\0" in path
        or "/../" in f"{path}/"
        or path.endswith("/")
    ):
        raise ValueError(f"{path!r} is no path")
    if data.get("error") or data.get("leave"):
        return Entry(
            targets, path, leave=bool(data.get("leave")), error=str(data.get("error", ""))[:500]
        )
    action = str(data.get("on_change", ""))
    if action not in _ACTIONS and action.split(" ")[0] not in ("reload", "signal"):
        raise ValueError(f"{action!r} is nothing to do")
    return Entry(
        targets,
        path,
        base64.b64decode(data["data"], validate=True),
        str(data["digest"]),
        int(data["mode"], 8) & 0o7777,
        str(data.get("owner", "root")),
        str(data.get("group", "root")),
        action,
        bool(data.get("beside")),
        str(data.get("within", "")),
        int(data.get("directory", "0755"), 8) & 0o7777,
    )


def to_wire(manifest: Manifest) -> dict[str, Any]:
    """The form that `parse` reads, for an agent that starts again."""
    return {"mark": manifest.mark, "files": list(map(_to_wire, manifest.entries))}


def _to_wire(entry: Entry) -> dict[str, Any]:
    return {
        "to": list(entry.targets),
        "path": entry.path,
        "data": base64.b64encode(entry.data).decode(),
        "digest": entry.digest,
        "mode": f"{entry.mode:o}",
        "owner": entry.owner,
        "group": entry.group,
        "on_change": entry.on_change,
        "beside": entry.beside,
        "within": entry.within,
        "directory": f"{entry.directory:o}",
        "leave": entry.leave,
        "error": entry.error,
    }


def named(entries: Iterable[Entry]) -> str:
    """A few of their paths, for people."""
    return first_few([entry.path for entry in entries], 5)
