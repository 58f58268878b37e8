"""The key `files` of the inventory: which files a node has beside what its images bring, for minOS
or for images.

A key is a path, or "TARGET:PATH" with an image's name or `minos` as the target, several with commas
between them; without one it is all images. Later layers win by the whole key; `null` takes one away
again.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from imageapi.spec.names import NAME as IMAGE
from layercake.base.text import describe, show
from layercake.moduleapi.fields import Check, Mistake, text
from layercake.moduleapi.module import NodePart

MINOS = "minos"
METADATA = "metadata"
METADATA_OF = "metadata@"
"""What a target begins with that is what the metadata service says to one image."""
ALL = "*"
SAID = ("/user-data", "/vendor-data", "/network-config")
"""What the metadata service may say beside what the head says of the node."""
MAX_FILES = 500
MAX_CONTENT = 256 << 10
MAX_PATH = 1024
TEMPLATE = ".j2"
"""What the names of templates in the directory of files end with."""
_NOT_BELOW = ("/proc", "/sys", "/dev")
_MODE = re.compile(r"0?[0-7]{3}|0?[0124][0-7]{3}")
_OWNER = re.compile(r"[a-z_][a-z0-9_-]{0,31}|[0-9]{1,9}")
_UNIT = re.compile(r"[A-Za-z0-9:_.@-]{1,200}")
_SECRET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SIGNALS = ("HUP", "USR1", "USR2", "INT", "TERM", "QUIT", "WINCH")


def _content(value: object) -> str:
    word = text(value)
    if len(word) > MAX_CONTENT or "\0" in word:
        raise Mistake(
            f"the content is longer than {MAX_CONTENT} characters, or has a zero byte",
            "put it into the directory of files, and write `source`",
        )
    return word


def _source(value: object) -> str:
    """A path in the directory of files."""
    word = text(value)
    if (
        not word
        or len(word) > MAX_PATH
        or word.startswith("/")
        or not word.isprintable()
        or any(part in ("", ".", "..") for part in word.rstrip("/").split("/"))
    ):
        raise Mistake(
            f"{show(word)} is no path in the directory of files",
            "such as slurm/slurm.conf.j2: relative, without ..",
        )
    return word.rstrip("/")


def _mode(value: object) -> str:
    if not isinstance(value, str) or not _MODE.fullmatch(value):
        raise Mistake(
            f"expected a mode, found {describe(value)}", 'write it in octal and in quotes: "0644"'
        )
    return value.zfill(4)


def _owner(value: object) -> str:
    word = str(value) if isinstance(value, int) and not isinstance(value, bool) else text(value)
    if not _OWNER.fullmatch(word):
        raise Mistake(
            f"{show(word)} is no user or group", "a name as in the image's /etc/passwd, or a number"
        )
    return word


def _secret(value: object) -> str:
    word = text(value)
    if not _SECRET.fullmatch(word):
        raise Mistake(
            f"{show(word)} is no secret's name",
            "the name of a file below files/ in the directory of secrets",
        )
    return word


def _on_change(value: object) -> str:
    """What is done when the file of a running image changes."""
    words = text(value).split()
    what = words[0] if words else ""
    rest = words[1:]
    if (what == "reload" and len(rest) == 1 and _UNIT.fullmatch(rest[0])) or (
        what == "signal" and len(rest) == 1 and rest[0] in SIGNALS
    ):
        return " ".join(words)
    if words in (["write"], ["restart"]):
        return what
    raise Mistake(
        f"expected what to do, found {show(text(value))}",
        f"reload UNIT, signal {'|'.join(SIGNALS)}, restart (of the image), or write: the file "
        "alone",
    )


class File(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file, or with `tree` all files of a directory."""

    content: Annotated[str | None, Check(_content), Meta(description="What is in it.")] = None
    source: Annotated[
        str,
        Check(_source),
        Meta(
            description="The file in the directory of files (`files.directory` of config.yaml) "
            "that has its content."
        ),
    ] = ""
    tree: Annotated[
        str,
        Check(_source),
        Meta(
            description="A directory in the directory of files: each file in it is given, below "
            "the key's path."
        ),
    ] = ""
    secret: Annotated[
        str,
        Check(_secret),
        Meta(
            description="The secret that is its content: a file below `files/` in the directory of "
            "secrets."
        ),
    ] = ""
    template: Annotated[
        bool | None,
        Meta(
            description="Whether it is a Jinja2 template. Sources whose names end in .j2 are, and "
            "others are not."
        ),
    ] = None
    owner: Annotated[str, Check(_owner), Meta(description="Its user, by name or number.")] = "root"
    group: Annotated[str, Check(_owner), Meta(description="Its group, by name or number.")] = "root"
    mode: Annotated[
        str,
        Check(_mode),
        Meta(
            description='Its mode in octal, in quotes: "0644", of secrets "0600", and of sources '
            'that may be executed "0755" if not '
            "given."
        ),
    ] = ""
    on_change: Annotated[
        str,
        Check(_on_change),
        Meta(
            description="What is done to a running image when it changes: `reload UNIT`, `signal "
            "HUP`, `restart` or `write`. If not "
            "given, the image has the change when it is started next."
        ),
    ] = ""
    leave: Annotated[
        bool,
        Meta(
            description="This path is left as the image has it, also if Layercake would give a "
            "file by itself."
        ),
    ] = False


class Files(NodePart, frozen=True, kw_only=True):
    """A node's files, by their keys."""

    KEY: ClassVar[str] = "files"
    ENTRY: ClassVar[type[msgspec.Struct] | None] = File
    WHOLE: ClassVar[bool] = True

    entries: dict[str, File] = msgspec.field(default_factory=dict)


class Place(NamedTuple):
    """Where a file goes: `targets` are images, MINOS, or ALL images."""

    targets: tuple[str, ...]
    path: str

    @property
    def of_metadata(self) -> bool:
        """Whether it is what the metadata service says, to all images or to one."""
        return any(one == METADATA or one.startswith(METADATA_OF) for one in self.targets)


def place_of(key: str) -> Place:
    """The place that a key names. Raises Mistake."""
    said, colon, path = key.partition(":/")
    targets = tuple(said.split(",")) if colon else (ALL,)
    path = f"/{path}" if colon else key
    for target in targets:
        image = target.removeprefix(METADATA_OF)
        if target not in (MINOS, METADATA, ALL) and not IMAGE.fullmatch(image):
            raise Mistake(
                f"{show(target)} is no image's name, and not {MINOS}",
                "as compute:/etc/motd or minos:/etc/motd",
                f"{key}.",
            )
    if not _is_path(path):
        raise Mistake(
            f"{show(path)} is no path of a file",
            "absolute, without . and .., as /etc/motd",
            f"{key}.",
        )
    if f"{path}/".startswith(tuple(f"{place}/" for place in _NOT_BELOW)):
        raise Mistake(
            f"no file is put below {', '.join(_NOT_BELOW)}",
            "a sysctl goes into uinit, or into /etc/sysctl.d",
            f"{key}.",
        )
    place = Place(targets, path)
    if place.of_metadata and (len(targets) > 1 or path not in SAID):
        raise Mistake(
            f"the metadata service has no {show(path)}",
            f"one of {', '.join(SAID)}, for {METADATA} alone, or for {METADATA_OF}IMAGE",
            f"{key}.",
        )
    return place


def _is_path(path: str) -> bool:
    """Whether it is absolute, has no superfluous parts, and can be shown."""
    return (
        path.startswith("/")
        and len(path) <= MAX_PATH
        and path.isprintable()
        and posixpath.normpath(path) == path
    )


def complete(given: dict[str, Any]) -> dict[str, Any]:
    """All files of a node. Raises Mistake for what does not go together."""
    if len(given) > MAX_FILES:
        raise Mistake(
            f"{len(given)} files, a node has {MAX_FILES} at most",
            "put them into a directory, and give it as a `tree`",
        )
    found = {key: File(**fields) for key, fields in given.items()}
    for key, one in found.items():
        _sound(key, one, place_of(key))
    return {"entries": found}


def _sound(key: str, one: File, place: Place) -> None:
    """Raises Mistake for a file whose keys contradict each other."""
    _check_content(key, one)
    if place.path == "/" and not one.tree:
        raise Mistake(
            f"file {key} is a directory", "write a tree for it, or the path of a file", f"{key}."
        )
    if (MINOS in place.targets or place.of_metadata) and one.on_change not in ("", "write"):
        raise Mistake(
            f"file {key}: nothing can be reloaded in minOS",
            "what is for minOS is written at once; remove it",
            f"{key}.on_change",
        )
    if place.of_metadata and (one.tree or one.leave):
        raise Mistake(
            f"file {key}: the metadata service takes one text",
            "give it content, source or secret",
            f"{key}.",
        )


def _check_content(key: str, one: File) -> None:
    """Raises Mistake unless the file says once what is in it."""
    kinds = [word for word in ("source", "tree", "secret", "leave") if getattr(one, word)]
    kinds += ["content"] if one.content is not None else []
    if len(kinds) != 1:
        has = f"says {' and '.join(kinds)}" if kinds else "does not say what is in it"
        raise Mistake(
            f"file {key} {has}", "give it one of content, source, tree, secret and leave", f"{key}."
        )
    if one.template is not None and kinds[0] not in ("source", "content"):
        raise Mistake(
            f"file {key}: template means nothing with {kinds[0]}", "remove it", f"{key}.template"
        )


def view(part: Files | None) -> dict[str, Any]:
    """What people see of it with the node: the keys."""
    return {} if part is None else {"files": sorted(part.entries)}


def sources(part: Files) -> Iterator[str]:
    """What a node's files use of the directory of files: of trees, their directories."""
    for one in part.entries.values():
        if one.source or one.tree:
            yield one.source or one.tree
