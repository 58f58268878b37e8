"""Files as a module of the head: a key of the inventory, and a section of config.yaml. It has no
process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from layercake.features.files.inventory import Files, complete, view
from layercake.moduleapi.fields import NEWER, Check, Mistake, text
from layercake.moduleapi.module import Module, Part


def _directory(value: object) -> str:
    word = text(value)
    if not Path(word).is_absolute() or ".." in Path(word).parts:
        raise Mistake("expected the absolute path of a directory", "such as /etc/layercake/files")
    return word


class FileSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files that nodes have beside what their images bring."""

    directory: Annotated[
        str,
        Check(_directory),
        Meta(
            description="Where the inventory's files and templates are; best under version "
            "control.",
            extra=NEWER,
        ),
    ] = "/etc/layercake/files"
    given: Annotated[
        bool,
        Meta(
            description="Whether images get host name, machine-id, hosts, SSH host keys and "
            "authorized_keys without asking.",
            extra=NEWER,
        ),
    ] = True


MODULE = Module(
    name="files",
    doc="Files that make one node different from the next.",
    section="files",
    settings=FileSettings,
    part=Part(Files, complete, view=view),
)
