"""Secrets by reference: {file: PATH} or {env: NAME}. Resolved only on the head, at use.

The reference is what is stored, shown and compared; the value lives in a Secret, whose repr hides
it. And the keys that the head's processes share (SharedKey), by which one believes another.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from layercake.base.files import write_atomic
from layercake.kraken.errors import InputError, OperationFailed

MAX_SECRET = 4096
MAX_WHOLE = 65536
OF_IMAGES = "images"
"""Below the directory of secrets: those that images name, and that their nodes get. No node gets
another."""
OF_FILES = "files"
"""Below it: those that files of the inventory name (`secret`), and that the nodes of these files
get."""

_KEPT = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR")
_KEPT_PREFIXES = ("LC_", "LD_", "PYTHON", "NODE_", "CEPH_", "FAKETIME")
_NEXT = ".next"
_KEY_BYTES = 32
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class Secret:
    """A secret value. Printing, formatting or pickling it never gives it away; `reveal` does."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value, for the call that needs it. Never log it, never put it on a command line."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.reveal() == self._value

    def __hash__(self) -> int:
        return hash(("Secret", self._value))

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not pickled")


def mark_of(secret: str) -> str:
    """Stands for a random secret where that itself must not be: two with one mark are the same."""
    return hashlib.sha256(secret.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a secret is: exactly one of a path in the directory of secrets or the name of a
    variable in the head's environment."""

    file: str | None = None
    env: str | None = None

    def __post_init__(self) -> None:
        if (self.file is None) == (self.env is None):
            raise InputError("cannot use secret reference: it needs exactly one of file and env")

    def __str__(self) -> str:
        return f"file {self.file}" if self.file is not None else f"environment variable {self.env}"

    def to_record(self) -> dict[str, str]:
        """{"file": PATH} or {"env": NAME}."""
        return {"file": self.file} if self.file is not None else {"env": self.env or ""}


def resolve(
    ref: SecretRef,
    directory: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    warn: Callable[[str], None] | None = None,
) -> Secret:
    """Reads the secret. One line break at the end is not part of it.

    With `directory` a file must lie in it, whatever path leads there; without one the caller
    himself has named the file. `warn` hears when the file is open to others (mode beyond 0600);
    that is a warning and not an error, so that a head comes up after a careless chmod. Raises
    InputError when the secret is missing, elsewhere, empty or not text.
    """
    if ref.env is not None:
        value = (os.environ if environ is None else environ).get(ref.env, "")
        if not value:
            raise InputError(
                f"cannot read secret: {ref} is not set",
                hint="set it in the environment of `layercake serve`",
            )
        return Secret(value)
    path = Path(ref.file or "")
    return Secret(_text(path, _read(path, directory, MAX_SECRET, warn)))


def _read(
    path: Path, directory: Path | None, most: int, warn: Callable[[str], None] | None
) -> bytes:
    """What is in a secret's file, one byte more than `most` at most. Raises InputError."""
    try:
        # O_NONBLOCK: a FIFO in the file's place must not hang the head.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags) if directory is None else _beneath(directory, path, flags)
    except OSError as error:
        hint = "it must exist on the head, mode 0600"
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and directory is not None:
            hint = f"symbolic links are not followed in {directory}"
        raise InputError(f"cannot read secret {path}: {error.strerror}", hint=hint) from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise InputError(f"cannot read secret {path}: not a regular file")
        if facts.st_mode & 0o077 and warn is not None:
            warn(
                f"secret {path} is open to others (mode {stat.S_IMODE(facts.st_mode):04o}); chmod "
                f"600 {path}"
            )
        return os.read(descriptor, most + 1)
    finally:
        os.close(descriptor)


def within(directory: Path, path: Path) -> Path:
    """A secret's path from the directory of secrets on. Raises InputError if it names something
    else."""
    inside = path.relative_to(directory) if path.is_relative_to(directory) else path
    if inside.is_absolute() or ".." in inside.parts or not inside.parts:
        raise InputError(
            f"cannot use secret {path}: it is not in {directory}",
            hint="secrets of the inventory lie there; `secrets` in config.yaml names another "
            "directory",
        )
    return inside


def _beneath(directory: Path, path: Path, flags: int) -> int:
    """Opens a file below a directory, by one name after the other: no symbolic link leads out of
    it. Raises OSError, InputError."""
    inside = within(directory, path)
    parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in inside.parts[:-1]:
            below = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent
            )
            os.close(parent)
            parent = below
        return os.open(inside.parts[-1], flags | os.O_NOFOLLOW, dir_fd=parent)
    finally:
        os.close(parent)


@dataclass(frozen=True, slots=True)
class Vault:
    """Where the inventory's secrets are: one directory for those in files, one environment for the
    others."""

    directory: Path
    environ: Mapping[str, str]

    def open(self, ref: SecretRef, warn: Callable[[str], None] | None = None) -> Secret:
        """See `resolve`."""
        return resolve(ref, self.directory, environ=self.environ, warn=warn)

    def whole(self, ref: SecretRef) -> bytes:
        """All of a secret's file, as it is: of several lines too, or no text. Raises InputError as
        `resolve`."""
        path = Path(ref.file or "")
        data = _read(path, self.directory, MAX_WHOLE, None)
        if not data or len(data) > MAX_WHOLE:
            raise InputError(
                f"cannot read secret {path}: it is empty, or longer than {MAX_WHOLE} bytes"
            )
        return data

    def written(self, ref: SecretRef) -> float | None:
        """When a secret's file was written last, in seconds since the epoch; None for one in the
        environment. Raises InputError and OSError."""
        if ref.file is None:
            return None
        descriptor = _beneath(self.directory, Path(ref.file), os.O_PATH | os.O_CLOEXEC)
        try:
            return os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)

    def prepare(self, ref: SecretRef, make: Callable[[], str]) -> str:
        """A new value for a secret in a file, on disk beside it; one that was prepared before is
        given again. Raises InputError for another kind of secret, or a directory that cannot be
        written to."""
        path = self._beside(ref)
        try:
            if not path.exists():
                write_atomic(path, make() + "\n", durable=True)
                _sync_directory(path.parent)
        except OSError as error:
            raise InputError(f"cannot write a secret beside {ref.file}: {error.strerror}") from None
        return self.open(SecretRef(file=str(path.relative_to(self.directory)))).reveal()

    def prepared(self, ref: SecretRef) -> SecretRef | None:
        """Where the value is that was prepared for a secret, None if none was. Raises
        InputError."""
        path = self._beside(ref)
        return SecretRef(file=str(path.relative_to(self.directory))) if path.exists() else None

    def commit(self, ref: SecretRef) -> None:
        """The value that was prepared is the secret's from now on. Raises InputError."""
        path = self._beside(ref)
        try:
            path.rename(path.with_name(path.name.removesuffix(_NEXT).removeprefix(".")))
            _sync_directory(path.parent)
        except OSError as error:
            raise InputError(f"cannot write secret {ref.file}: {error.strerror}") from None

    def _beside(self, ref: SecretRef) -> Path:
        if ref.file is None:
            raise InputError(f"cannot write secret {ref}: it is no file")
        path = self.directory / within(self.directory, Path(ref.file))
        if (
            path.is_symlink()
            or path.parent.resolve()
            != self.directory.resolve() / path.parent.relative_to(self.directory)
        ):
            raise InputError(f"cannot write secret {ref.file}: a symbolic link is on its way")
        return path.with_name(f".{path.name}{_NEXT}")


class SharedKey:
    """A random key in a file for its owner alone, by which processes of one head believe what
    others of them have signed. Whichever needs it first makes it. `what` is how errors call it."""

    def __init__(self, file: Path, what: str) -> None:
        self._file = file
        self._what = what
        self._key = b""

    def sign(self, *lines: str) -> str:
        """The HMAC-SHA256 of these lines, in hex. Raises OperationFailed, InputError."""
        text = "\n".join(lines).encode("utf-8", "replace")
        return hmac.new(self._key or self._load(), text, hashlib.sha256).hexdigest()

    def matches(self, tag: str, *lines: str) -> bool:
        """Whether a tag is what `sign` makes of these lines. Raises as that does."""
        return hmac.compare_digest(self.sign(*lines).encode(), tag.encode("utf-8", "replace"))

    def _load(self) -> bytes:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            if not self._file.exists():
                self._make()
            key = self._file.read_bytes()
        except OSError as error:
            raise OperationFailed(
                f"cannot use {self._what} {self._file}: {error.strerror}"
            ) from None
        if len(key) != _KEY_BYTES:
            raise InputError(
                f"cannot use {self._what} {self._file}: it is damaged", hint="delete it"
            )
        self._key = key
        return key

    def _make(self) -> None:
        """The first to have it in its place wins: the file is never there without the whole key."""
        temporary = self._file.with_name(f".{self._file.name}-{os.urandom(8).hex()}")
        write_atomic(temporary, os.urandom(_KEY_BYTES), durable=True)
        try:
            os.link(temporary, self._file)
        except FileExistsError:
            return
        finally:
            temporary.unlink()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """What other processes get of the head's environment: how programs run here, and no secret,
    which may have any name. Whoever may look at a process may read its environment."""
    return {
        name: value
        for name, value in environ.items()
        if name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }


def _text(path: Path, data: bytes) -> str:
    if len(data) > MAX_SECRET:
        raise InputError(f"cannot read secret {path}: longer than {MAX_SECRET} bytes")
    try:
        value = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise InputError(f"cannot read secret {path}: not UTF-8 text") from None
    if not value or "\n" in value or "\0" in value:
        raise InputError(f"cannot read secret {path}: it must be one line that is not empty")
    return value
