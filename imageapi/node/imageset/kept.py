"""Directories of images that outlive them (`keep`): on a disk of the node, which the inventory has
for that.

RUN/kept                    a link to where that disk is mounted (minos.agent.disks.manager)
RUN/kept/layercake/NAME     such a directory; NAME is its path with %2F for /
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from imageapi.node import tree
from imageapi.node.container.oci import Bind
from imageapi.spec.image import ImageSpec
from layercake.kraken.errors import OperationFailed

AT = "kept"
_COPY_S = 600.0


def binds(spec: ImageSpec, root: Path, place: Path) -> list[Bind]:
    """What an image keeps, as it sees it. Its first time a directory has what the image brings
    there. `place` is RUN/kept. Raises OperationFailed."""
    if not spec.container.keep:
        return []
    if not place.is_symlink() or not os.path.ismount(place.readlink()):
        raise OperationFailed(
            f"cannot give image {spec.name} what it keeps: no disk of this node is for that",
            hint="`disks` in the inventory, with `kept: true` and a volume with `keeps: true`",
        )
    return [
        Bind(str(_directory(spec, path, root, place / "layercake")), path)
        for path in spec.container.keep
    ]


def _directory(spec: ImageSpec, path: str, root: Path, place: Path) -> Path:
    name = path.strip("/").replace("%", "%25").replace("/", "%2F")
    directory = place / name
    new = place / f".{name}.new"
    try:
        if directory.is_dir():
            return directory
        place.mkdir(mode=0o711, exist_ok=True)
        tree.remove(new)
        source = _inside(root, path)
        if source is None:
            new.mkdir(mode=0o755)
        else:
            subprocess.run(
                ["cp", "-a", "--", str(source), str(new)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=_COPY_S,
            )
        new.rename(directory)
    except (OSError, subprocess.SubprocessError) as error:
        why = (
            error.stderr.decode(errors="replace")[-300:]
            if isinstance(error, subprocess.CalledProcessError)
            else str(error)
        )
        raise OperationFailed(
            f"cannot make what image {spec.name} keeps of {path}: {why}"
        ) from None
    return directory


def _inside(root: Path, path: str) -> Path | None:
    """A directory of an image, None if it has none there. A link on the way might lead out of the
    image: then it has none."""
    resolved = root
    for part in Path(path).parts[1:]:
        resolved /= part
        if resolved.is_symlink() or not resolved.is_dir():
            return None
    return resolved
