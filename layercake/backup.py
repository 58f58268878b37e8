"""`layercake backup` and `layercake restore`: all that a head cannot make anew, in one encrypted
file.

The file is the line MAGIC, 16 bytes of salt, 12 of nonce, and a tar archive (gzip), encrypted by
AES-256-GCM with a key that scrypt makes of the passphrase (N 2^16, r 8, p 1). What is before the
ciphertext is authenticated too. In it: the database, the settings, the certificate authority, the
tokens, the image store's index and keys, and the inventory's history as a bundle of git. Images are
not in it, nor minOS, nor files that the inventory refers to; nor what a head has for its store:
what is restored of one of several heads is a head that is alone.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from layercake.base.files import write_atomic
from layercake.features.access import tokens
from layercake.features.heads import known
from layercake.features.history.feature import FOLDER
from layercake.features.history.repository import Repository, RepositoryError
from layercake.features.releases import table as kept
from layercake.fleet.persistence import schema
from layercake.head import lock
from layercake.head import settings as head_settings
from layercake.heads.settings import HeadsSettings
from layercake.kraken.errors import InputError, OperationFailed, Refused

MAGIC = b"layercake backup 1\n"
SALT = 16
NONCE = 12
LIMIT = 2**31 - 1
"""Bytes; more AES-GCM does not take at once. Ten thousand nodes and their history are some 60 MB
before they are compressed."""
DATABASE = "layercake.db"
HISTORY = "inventory.bundle"
"""The inventory's history, the repository history.FOLDER."""
TOKENS = ("tokens.json", "admin.token")
"""The first token, and the tokens of an older Layercake; the others are in the database."""
FILES = (
    head_settings.FILE_NAME,
    *TOKENS,
    "images/index.json",
    "images/cluster.json",
    "images/node.key",
    "images/node-keys.json",
    "images/signing.key",
    "images/signatures.json",
)
VARIABLE = "LAYERCAKE_PASSPHRASE"
SHORTEST = 8
_AUTHORITY = re.compile(r"pki/[A-Za-z0-9_-]+\.[a-z]+")


def passphrase(file: Path | None) -> bytes:
    """The passphrase from a file, or else from the environment. Raises InputError."""
    try:
        found = (
            file.read_bytes().strip()
            if file is not None
            else os.environ.get(VARIABLE, "").strip().encode()
        )
    except OSError as error:
        raise InputError(f"cannot read the passphrase from {file}: {error.strerror}") from None
    if not found:
        raise InputError(
            "cannot go on without a passphrase",
            hint=f"--passphrase-file FILE, or {VARIABLE} in the environment",
        )
    if len(found) < SHORTEST:
        raise InputError(f"cannot use this passphrase: it is shorter than {SHORTEST} characters")
    return found


def _key(secret: bytes, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=32, n=2**16, r=8, p=1).derive(secret)


# -- back up


def back_up(data_dir: Path, file: Path, secret: bytes) -> list[str]:
    """Writes a backup of a data directory, whose head may be running; the names of what is in it.
    Raises InputError and OperationFailed; an older file of this name is then still there."""
    held = {DATABASE: schema.copy(data_dir / DATABASE)}
    # After the database: what is in that is in the history too, and the head that is restored
    # commits what came between the two as taken back.
    if bundle := _bundled(data_dir / FOLDER):
        held[HISTORY] = bundle
    try:
        authority = [
            f"pki/{path.name}" for path in sorted((data_dir / "pki").glob("*")) if path.is_file()
        ]
        held |= {
            name: (data_dir / name).read_bytes()
            for name in (*FILES, *authority)
            if (data_dir / name).is_file()
        }
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from None
    if head_settings.FILE_NAME not in held:
        raise InputError(
            f"cannot back up {data_dir}: there is no {head_settings.FILE_NAME}",
            hint="is this the data directory?",
        )
    archive = _pack(held)
    if len(archive) > LIMIT:
        raise OperationFailed(
            f"cannot back up {data_dir}: compressed it has {len(archive)} bytes, {LIMIT} are "
            "possible"
        )
    head = MAGIC + os.urandom(SALT + NONCE)
    salt = head[len(MAGIC) : -NONCE]
    nonce = head[-NONCE:]
    try:
        write_atomic(
            file,
            head + AESGCM(_key(secret, salt)).encrypt(nonce, archive, head),
            mode=0o600,
            durable=True,
        )
    except OSError as error:
        raise OperationFailed(f"cannot write {file}: {error.strerror}") from None
    return sorted(held)


def _bundled(repository: Path) -> bytes:
    """The history, b"" if there is none, or it cannot be read: that keeps nobody from a backup."""
    if not repository.is_dir():
        return b""
    try:
        return Repository(repository).run("bundle", "create", "--quiet", "-", "--all")
    except RepositoryError:
        return b""


def has_history(data_dir: Path) -> bool:
    """Whether a data directory has a history, which belongs into a backup."""
    return (data_dir / FOLDER).is_dir()


def _unbundle(bundle: Path, repository: Path) -> None:
    """Makes the repository of a bundle. Raises OperationFailed."""
    found = Repository(repository)
    try:
        found.open()
        found.run("fetch", "--quiet", str(bundle), "refs/heads/*:refs/heads/*")
        found.run("update-server-info")
    except RepositoryError as error:
        raise OperationFailed(f"cannot restore the inventory's history: {error}") from None
    bundle.unlink()


def _pack(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = 0o600
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


# -- restore


def restore(
    file: Path, data_dir: Path, secret: bytes, *, replace: bool = False, revoke: bool = False
) -> list[str]:
    """Puts a backup into a data directory that is empty; with `replace`, in the place of what is
    there. All is checked first. With `revoke` none of its tokens lets anybody in: tokens that were
    revoked after it was made would, otherwise.

    Raises InputError for a backup that cannot be used, Refused for a directory that is not empty,
    and OperationFailed if it cannot be written.
    """
    files = _open(file, secret)
    if revoke:
        for name in TOKENS:
            files.pop(name, None)
    schema.check_content(files[DATABASE], data_dir / DATABASE)
    filled = data_dir.is_dir() and any(data_dir.iterdir())
    if filled and not replace:
        raise Refused(
            f"cannot restore into {data_dir}: it is not empty",
            hint="move it away, or say --replace",
        )
    held = lock.acquire(data_dir, "restore into") if filled else None
    try:
        _put_in_place(files, data_dir, revoke=revoke)
    except OSError as error:
        raise OperationFailed(
            f"cannot write {error.filename or data_dir}: {error.strerror}"
        ) from None
    finally:
        if held is not None:
            os.close(held)
    return sorted(files)


def _open(file: Path, secret: bytes) -> dict[str, bytes]:
    """The files in a backup. Raises InputError."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from None
    start = len(MAGIC) + SALT + NONCE
    if not data.startswith(MAGIC) or len(data) <= start:
        raise InputError(f"cannot read {file}: it is no backup that this Layercake knows")
    head = data[:start]
    try:
        archive = AESGCM(_key(secret, head[len(MAGIC) : -NONCE])).decrypt(
            head[-NONCE:], data[start:], head
        )
    except InvalidTag:
        raise InputError(
            f"cannot read {file}: the passphrase is wrong, or the file is damaged"
        ) from None
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as entries:
        for entry in entries:
            content = entries.extractfile(entry)
            if content is None or not (
                entry.name in (DATABASE, HISTORY, *FILES) or _AUTHORITY.fullmatch(entry.name)
            ):
                raise InputError(
                    f"cannot restore {file}: it holds {entry.name[:80]!r}, which does not belong "
                    "into a backup"
                )
            found[entry.name] = content.read()
    if not {DATABASE, head_settings.FILE_NAME} <= found.keys():
        raise InputError(f"cannot restore {file}: it holds no database or no settings")
    return found


def _put_in_place(files: Mapping[str, bytes], data_dir: Path, *, revoke: bool) -> None:
    """Writes all into a directory of its own, checks the settings there, and moves the files into
    place. Raises OSError and InputError; nothing is moved then."""
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = Path(tempfile.mkdtemp(prefix=".restore-", dir=data_dir))
    try:
        for name, data in files.items():
            (fresh / name).parent.mkdir(mode=0o700, exist_ok=True)
            write_atomic(fresh / name, data, mode=0o600, durable=True)
        settings = head_settings.load(fresh)
        if settings.heads.name:
            # The other heads, and their store, are newer than the backup, or gone.
            alone = msgspec.structs.replace(settings, heads=HeadsSettings())
            files = {**files, head_settings.FILE_NAME: head_settings.encode(alone)}
        known.forget_heads(fresh / DATABASE)
        known.raise_epoch(fresh / DATABASE)
        if HISTORY in files:
            _unbundle(fresh / HISTORY, fresh / FOLDER)
        # The node may be somebody else's by now: a release of then erases nothing.
        kept.give_up(fresh / DATABASE, "the restore of a backup", time.time())
        if revoke:
            tokens.drop_all(fresh / DATABASE)
            for name in TOKENS:
                (data_dir / name).unlink(missing_ok=True)
        for suffix in (
            "-wal",
            "-shm",
        ):  # of the database that goes: SQLite would read them into the new one
            (data_dir / f"{DATABASE}{suffix}").unlink(missing_ok=True)
        if HISTORY in files:
            shutil.rmtree(data_dir / FOLDER, ignore_errors=True)
            (fresh / FOLDER).replace(data_dir / FOLDER)
        for name in files.keys() - {head_settings.FILE_NAME, HISTORY}:
            (data_dir / name).parent.mkdir(mode=0o700, exist_ok=True)
            (fresh / name).replace(data_dir / name)
        # Last: without it nothing is served. It may be a link into another file system.
        write_atomic(
            head_settings.place(data_dir), files[head_settings.FILE_NAME], mode=0o600, durable=True
        )
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
