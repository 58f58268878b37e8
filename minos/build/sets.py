"""Boot sets: a kernel, the minOS and the agent that belong together, in a directory of their own
below boot/.

A set never changes: another content is another set. So what a node boots is of one piece, also
while a new set is being built, and the old ones stay for the way back. Its file `signature` says
what its files are, signed by the head on which it was built: a set of which that is not so any more
is neither booted nor handed over.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from layercake import __version__
from layercake.base.files import write_json
from layercake.base.text import parse_json
from layercake.kraken.errors import InputError, NotFound
from minos.build import result
from minos.build.builder import BuildOptions, build
from minos.build.debian import programs
from minos.build.profiles import Profile

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
FILES = ("vmlinuz", "minos.img")
AGENT = "agent.zip"
HARDWARE = result.HARDWARE
MODULES = result.MODULES
DISKTOOLS = result.DISKTOOLS
_MORE = (AGENT, HARDWARE, MODULES, DISKTOOLS, result.CARDS, "minos.json", *programs.NAMES)
SIGNATURE = "signature"
FIRST_PYTHON = "3.11"
"""Of the sets that do not say it."""

Sign = Callable[[str], str]
Signed = Callable[[str, str], bool]
"""Make the signature of a text, and tell whether a text has this signature."""


@dataclass(frozen=True, slots=True)
class BootSet:
    """One set. `at` is when it was built, seconds since the epoch; `kernel` its release; sizes in
    bytes. `agent`: it has one that can replace another in place. `authorities` marks whom its minOS
    trusts (minos.agent.head_link.trust), "" if it does not say. `profile` is what it was built by,
    None if it does not say; `about` all of what was said when it was built; `python` is the version
    that its minOS has, and that its agent is compiled for."""

    name: str
    directory: Path
    at: float
    kernel: str
    size: int
    agent: bool
    authorities: str = ""
    profile: Profile | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    python: str = FIRST_PYTHON

    @property
    def architecture(self) -> str:
        """Of the machines that it boots."""
        return self.profile.architecture if self.profile is not None else platform.machine()


def name_of(directory: Path) -> str:
    """The name of the set in a directory: the version that built it, and a digest of its
    content."""
    digest = hashlib.blake2b(digest_size=4)
    for name in (*FILES, AGENT, HARDWARE, MODULES, DISKTOOLS, *programs.NAMES):
        if (directory / name).is_file():
            with (directory / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
    return f"{__version__}-{digest.hexdigest()}"


def _digests(directory: Path) -> dict[str, str]:
    """{file: hex of its BLAKE2b-256} of the files of a set. Raises OSError."""
    digests = {}
    for name in (*FILES, *_MORE):
        if (directory / name).is_file():
            with (directory / name).open("rb") as file:
                digests[name] = hashlib.file_digest(
                    file, lambda: hashlib.blake2b(digest_size=32)
                ).hexdigest()
    return digests


def sign(directory: Path, name: str, make: Sign) -> None:
    """Writes down, signed, what the files of a set are."""
    text = json.dumps(
        {"set": name, "files": _digests(directory)}, sort_keys=True, separators=(",", ":")
    )
    write_json(directory / SIGNATURE, {"manifest": text, "signature": make(text)}, mode=0o644)


def trouble(boot: Path, name: str, signed: Signed) -> str:
    """Why a set must not be used, "" if its files are what was signed. Reads all of it."""
    directory = boot / name
    try:
        signed_manifest = parse_json((directory / SIGNATURE).read_bytes())
        text = str(signed_manifest["manifest"])
        signature = str(signed_manifest["signature"])
    except FileNotFoundError:
        return "it is not signed"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"its signature cannot be read: {error!r}"
    if not signed(text, signature):
        return "it is not signed by this head"
    try:
        manifest = json.loads(text)
        digests = _digests(directory)
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    if manifest["set"] != name:
        return f"its signature is that of {str(manifest['set'])[:64]}"
    other = sorted(
        file
        for file in {*manifest["files"], *digests}
        if manifest["files"].get(file) != digests.get(file)
    )
    return f"{', '.join(other)} was changed since it was signed" if other else ""


def signed_digest(boot: Path, name: str, file: str, signed: Signed) -> str:
    """What a file of a set is by the set's signature: hex of its BLAKE2b-256, "" if the set has no
    such file. Raises InputError for a set that is not signed so. Reads nothing else."""
    try:
        signed_manifest = parse_json((boot / name / SIGNATURE).read_bytes())
        text = str(signed_manifest["manifest"])
        signature = str(signed_manifest["signature"])
        manifest = json.loads(text) if signed(text, signature) else {}
        if manifest.get("set") != name:
            raise InputError(f"cannot use boot set {name}: it is not signed by this head")
        return str(manifest["files"].get(file, ""))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"cannot use boot set {name}: its signature cannot be read: {error!r}"
        ) from None


def mark(boot: Path, name: str) -> tuple[object, ...]:
    """Differs when a file of a set was touched in any way since."""
    parts: list[object] = []
    for file in (*FILES, *_MORE, SIGNATURE):
        try:
            seen = (boot / name / file).stat()
        except OSError as error:
            parts.append(error.errno)
        else:
            parts += (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    return tuple(parts)


def load(boot: Path, name: str) -> BootSet:
    """The set of this name. Raises NotFound."""
    directory = boot / name
    if not NAME.fullmatch(name) or not all((directory / file).is_file() for file in FILES):
        raise NotFound(f"cannot find boot set {name[:64]!r}", hint="see `layercake boot list`")
    try:
        document = parse_json((directory / "minos.json").read_bytes())
    except (OSError, ValueError):
        document = {}
    fields = document if isinstance(document, dict) else {}
    kernel, authorities, python = (
        str(fields.get(key) or "")[:200] for key in ("kernel_release", "authorities", "python")
    )
    size = sum(
        (directory / file).stat().st_size
        for file in (*FILES, HARDWARE)
        if (directory / file).is_file()
    )
    return BootSet(
        name,
        directory,
        (directory / FILES[1]).stat().st_mtime,
        kernel,
        size,
        (directory / AGENT).is_file(),
        authorities,
        Profile.from_json(fields.get("profile")),
        fields,
        python or FIRST_PYTHON,
    )


def all_of(boot: Path) -> list[BootSet]:
    """All sets below boot/, the newest first. Others may be built and removed meanwhile."""
    sets = []
    for directory in boot.iterdir() if boot.is_dir() else ():
        with contextlib.suppress(NotFound, FileNotFoundError):
            sets.append(load(boot, directory.name))
    return sorted(sets, key=lambda s: (-s.at, s.name))


def add(
    boot: Path, options: BuildOptions, say: Callable[[str], None], make: Sign, signed: Signed
) -> BootSet:
    """Builds a set below boot/, and signs it; one that is there already stays, if nobody has
    touched it. Raises LayercakeError."""
    boot.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=boot))
    try:
        build(replace(options, out=new), say=say)
        new.chmod(0o755)
        name = name_of(new)
        sign(new, name, make)
        if (boot / name).exists() and trouble(boot, name, signed):
            shutil.rmtree(boot / name)
        return install_set(boot, new)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def install_set(boot: Path, directory: Path) -> BootSet:
    """Makes a set below boot/ of what is in a directory on the same disk, which is moved."""
    name = name_of(directory)
    if not (boot / name).exists():
        directory.rename(boot / name)
    return load(boot, name)


def adopt(boot: Path, *, clear: bool) -> BootSet | None:
    """Makes a set of the files that an older Layercake built in boot/ itself; None if there are
    none. `clear`: they go then, no older head serves them any more."""
    if not all((boot / file).is_file() for file in FILES):
        return None
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=boot))
    new.chmod(0o755)
    for file in (*FILES, *_MORE):
        if (boot / file).is_file():
            os.link(boot / file, new / file)
    try:
        boot_set = install_set(boot, new)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    for file in (*FILES, *_MORE) if clear else ():
        (boot / file).unlink(missing_ok=True)
    return boot_set


def remove(boot: Path, name: str) -> None:
    """Takes a set away. Raises NotFound, and InputError if the disk refuses."""
    directory = load(boot, name).directory
    try:
        shutil.rmtree(directory)
    except OSError as error:
        raise InputError(f"cannot remove boot set {name}: {error.strerror}") from None
