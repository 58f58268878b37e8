"""What an image is built from: told by looking at it, and refused in words when it is nothing that
we know."""

from __future__ import annotations

import enum
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from imageapi.build.rootfs import CAPABILITY
from layercake.kraken.errors import InputError

DOCKERFILES = ("Dockerfile", "Containerfile")
_ATTRIBUTE = re.compile(r"(?:SCHILY|LIBARCHIVE)\.xattr\.(.+)", re.DOTALL)
_NAMES = {
    "SCHILY.acl.access": "system.posix_acl_access",
    "SCHILY.acl.default": "system.posix_acl_default",
    "RHT.security.selinux": "security.selinux",
}
MOST_FILES = 2_000_000
_MOST_TOPS = 10_000
_MOST_NOTED = 100_000
_MARKS = ("oci-layout", "manifest.json")
_ROOT = {"bin", "etc", "init", "lib", "sbin", "usr"}


class Kind(enum.Enum):
    """The kinds of source, with what a person calls them."""

    TREE = "a root file system"
    TAR = "a root file system in a tar file"
    DOCKERFILE = "a Dockerfile"
    LAYOUT = "an OCI layout"
    OCI_ARCHIVE = "an OCI archive"
    DOCKER_ARCHIVE = "a Docker archive"


@dataclass(frozen=True, slots=True)
class Source:
    """`path` is the thing itself, `context` the directory that a Dockerfile may copy from. `others`
    are the extended attributes of a root file system in a tar file that do not belong into an image
    (rootfs.Attributes)."""

    kind: Kind
    path: Path
    context: Path
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)


def detect(path: Path, dockerfile: Path | None = None) -> Source:
    """Finds out what there is at a path. `dockerfile` says which one, when `path` is its context.
    Raises InputError."""
    if dockerfile is not None:
        if not path.is_dir() or not dockerfile.is_file():
            raise InputError(
                f"cannot build: {path if not path.is_dir() else dockerfile} is not there",
                hint="with --file, the first argument is the directory that the Dockerfile copies "
                "from",
            )
        return Source(Kind.DOCKERFILE, dockerfile, path)
    if path.is_dir():
        return _directory(path)
    if not path.is_file():
        raise InputError(f"cannot build: there is no {path}")
    if tarfile.is_tarfile(path):
        kind, others = _archive(path)
        return Source(kind, path, path.parent, others)
    if _is_dockerfile(path):
        return Source(Kind.DOCKERFILE, path, path.parent)
    raise InputError(
        f"cannot build: {path} is no Dockerfile, OCI archive or tar file",
        hint="a squashfs needs no building: layercake image add NAME FILE",
    )


def _directory(path: Path) -> Source:
    for name in DOCKERFILES:
        if (path / name).is_file():
            return Source(Kind.DOCKERFILE, path / name, path)
    names = {entry.name for entry in path.iterdir()}
    if "oci-layout" in names:
        return Source(Kind.LAYOUT, path, path)
    if not names & _ROOT:
        raise InputError(
            f"cannot build: {path} has no Dockerfile, and nothing that a root file system has",
            hint=f"which is one of {', '.join(sorted(_ROOT))}",
        )
    return Source(Kind.TREE, path, path)


def _is_dockerfile(path: Path) -> bool:
    """Whether a text's first instruction is one that a Dockerfile may begin with."""
    with path.open("rb") as file:
        start = file.read(65536)
    if b"\0" in start:
        return False
    instructions = (
        line.split()[0].upper()
        for line in start.decode("utf-8", "replace").splitlines()
        if line.split()
    )
    return next(
        (instruction for instruction in instructions if not instruction.startswith("#")), ""
    ) in ("FROM", "ARG")


def _archive(path: Path) -> tuple[Kind, dict[str, list[str]]]:
    """The kind of a tar file, and of a root file system the attributes that it has in vain. The two
    archives hold plain files only, so that unpacking them is safe. Raises InputError."""
    looked = _Look()
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                looked.at(path, member)
                # It would keep them all, and few bytes may be many.
                archive.members = []  # type: ignore[attr-defined]
    except (tarfile.TarError, OSError, EOFError) as error:
        raise InputError(f"cannot build: {path} is damaged: {error}") from None
    kind = looked.kind
    if kind is Kind.TAR and not looked.tops & _ROOT:
        raise InputError(f"cannot build: {path} is neither an OCI archive nor a root file system")
    if kind is not Kind.TAR and (odd := looked.odd.get(kind)) is not None:
        raise InputError(
            f"cannot build: {path} holds {ascii(odd)[:120]}, which has no place in {kind.value}",
            hint="it was made by hand, perhaps to do harm",
        )
    return kind, looked.others if kind is Kind.TAR else {}


class _Look:
    """What is seen of an archive, one member after the other: in bounded memory."""

    def __init__(self) -> None:
        self.tops: set[str] = set()
        self.others: dict[str, list[str]] = {}
        self.odd: dict[Kind, str] = {}
        self._marks: set[str] = set()
        self._count = 0

    @property
    def kind(self) -> Kind:
        """What it is by what was seen."""
        if "oci-layout" in self._marks:
            return Kind.OCI_ARCHIVE
        return Kind.DOCKER_ARCHIVE if "manifest.json" in self._marks else Kind.TAR

    def at(self, path: Path, member: tarfile.TarInfo) -> None:
        """The next member. Raises InputError for one too many."""
        self._count += 1
        if self._count > MOST_FILES:
            raise InputError(f"cannot build: {path} holds more than {MOST_FILES:,} files")
        name = PurePosixPath(member.name)
        if str(name) in _MARKS:
            self._marks.add(str(name))
        if name.parts and len(self.tops) < _MOST_TOPS:
            self.tops.add(name.parts[0])
        for kind in (Kind.OCI_ARCHIVE, Kind.DOCKER_ARCHIVE):
            if kind not in self.odd and not _plain(member, name, kind):
                self.odd[kind] = member.name
        for attribute in _other_attributes(member):
            places = self.others.setdefault(attribute, [])
            if len(places) < _MOST_NOTED:
                places.append(str(name).lstrip("/"))


def _attribute(key: str) -> str:
    """The extended attribute that a pax header stands for, "" for none."""
    match = _ATTRIBUTE.fullmatch(key)
    return _NAMES.get(key) or (match[1] if match else "")


def _other_attributes(member: tarfile.TarInfo) -> list[str]:
    """The extended attributes of a file that are no file capabilities (pax headers of GNU tar, star
    and libarchive)."""
    names = {_attribute(key) for key, value in member.pax_headers.items() if value}
    return sorted(names - {"", CAPABILITY})


def _plain(member: tarfile.TarInfo, name: PurePosixPath, kind: Kind) -> bool:
    """Whether a member may be in an archive of images: unpacking it leads nowhere else."""
    # docker save links layers that occur twice; the links stay inside the archive.
    linked = (
        kind is Kind.DOCKER_ARCHIVE
        and (member.issym() or member.islnk())
        and not PurePosixPath(member.linkname).is_absolute()
    )
    return (
        not name.is_absolute()
        and ".." not in name.parts
        and (member.isfile() or member.isdir() or linked)
    )
