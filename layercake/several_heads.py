"""Makes this machine's head one of several: the first one (`layercake heads begin`), a further one
(`layercake init --join`), a witness (`layercake witness`); and the last one alone again."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from layercake import __version__
from layercake.agents import pki
from layercake.agents.pki import Authority
from layercake.base.files import write_atomic
from layercake.features.heads import register
from layercake.features.heads.join_client import join as ask_to_join
from layercake.features.heads.joining import JoinAnswer, JoinRequest, check_name, url_of
from layercake.features.heads.known import forget_heads
from layercake.features.heads.register import Register
from layercake.guess import Given, choose, read_machine
from layercake.head import lock, site_settings
from layercake.head import settings as head_settings
from layercake.heads import member
from layercake.heads.copying import HeadLink
from layercake.heads.etcd import Etcd, KeyValue, StoreAway, StoreRefused, after
from layercake.heads.files import SharedFiles
from layercake.heads.member import MemberFile
from layercake.heads.settings import DIRECTORY, KEY, KEY_BYTES, HeadsSettings, store_tls
from layercake.kraken.errors import InputError, OperationFailed, Refused

SYSTEMD_S = 120.0
UNIT = "layercake-store.service"
Echo = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of this machine's member of the store: for heads, and for the other members."""

    client: int = member.PORT
    peer: int = member.PORT + 1


@dataclass(frozen=True, slots=True)
class ForeignStore:
    """An etcd that the site has anyhow: its URLs, and the files that it is asked with."""

    urls: tuple[str, ...]
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


def begin(
    data_dir: Path,
    name: str,
    echo: Echo,
    *,
    prefix: str,
    ports: Ports,
    foreign: ForeignStore | None = None,
) -> None:
    """Makes this head the first of several: its database becomes the first whole copy when it
    starts again. Raises InputError, Refused and OperationFailed."""
    check_name(name)
    settings = head_settings.load(data_dir)
    if settings.heads.name:
        raise Refused(f"cannot begin: this is head {settings.heads.name} of several already")
    folder = data_dir / DIRECTORY
    certificates = {} if foreign is None else _certificates_of(foreign)
    if foreign is None:
        _need_etcd()
    shutil.rmtree(folder, ignore_errors=True)  # of a time before `end`, or another try
    if foreign is None:
        pki.create_authority(data_dir / register.AUTHORITY)
    folder.mkdir(mode=0o700, exist_ok=True)
    write_atomic(folder / KEY, os.urandom(KEY_BYTES), durable=True)
    addresses = _addresses(settings.address)
    urls = [url_of(settings.address, ports.client)]
    peer_url = url_of(settings.address, ports.peer)
    if foreign is None:
        _write_files(folder, Register(data_dir).add(name, peer_url, addresses, witness=False))
        _write_member(data_dir, MemberFile(name, urls[0], peer_url, {name: peer_url}, False))
    else:
        urls = list(foreign.urls)
        for file, data in certificates.items():
            write_atomic(folder / file, data, durable=True)
        Register(data_dir).add(name, "", addresses, witness=False)
    heads = HeadsSettings(name=name, store=urls, prefix=prefix)
    if foreign is not None:
        _check_foreign(data_dir, heads)
    _forget_heads(data_dir)
    site_settings.SiteSettings(data_dir).write()
    head_settings.save(data_dir, msgspec.structs.replace(settings, heads=heads))
    echo(f"this head is {name}, and leads when it starts again: `systemctl restart layercake`")
    if foreign is None:
        _start_store(data_dir, echo)


def _check_foreign(data_dir: Path, heads: HeadsSettings) -> None:
    """Asks an etcd of the site's. Raises InputError if it cannot be used, and Refused if there are
    heads in it."""
    first = heads.prefix.encode()
    if not first:
        raise InputError("cannot begin: the prefix is empty", hint="--prefix /layercake/")
    store = Etcd(heads.store, store_tls(data_dir, heads.store))

    async def read_one() -> Sequence[KeyValue]:
        try:
            return await store.read(first, after(first), 1)
        finally:
            await store.close()

    try:
        found = asyncio.run(read_one())
    except (StoreAway, StoreRefused) as error:
        hint = error.hint if isinstance(error, StoreRefused) else "are its URLs and files right?"
        raise InputError(f"cannot begin: {error.message}", hint=hint) from None
    if found:
        raise Refused(
            f"cannot begin: that etcd has keys that begin with {heads.prefix}: of other heads?",
            hint="choose another --prefix; those of heads that have ended go by "
            f"`etcdctl del --prefix {heads.prefix}`",
        )


def end(data_dir: Path, echo: Echo) -> None:
    """Makes the last head one that is alone: with the database that it has, and without the others.
    Raises InputError; nothing has changed then."""
    settings = head_settings.load(data_dir)
    if not settings.heads.name:
        raise InputError("cannot end: this site has one head")
    held = lock.acquire(data_dir, "change")
    try:
        _forget_heads(data_dir)
        alone = msgspec.structs.replace(settings, heads=HeadsSettings())
        head_settings.save(data_dir, alone)
        (data_dir / member.FILE).unlink(missing_ok=True)
        (data_dir / "lease").unlink(missing_ok=True)
        if Path("/run/systemd/system").exists() and data_dir == head_settings.USUAL:
            _systemctl("disable", "--now", UNIT)
    finally:
        os.close(held)
    echo("this head is alone now, with the database that it has: `systemctl start layercake`")
    echo("the other heads and witnesses are to be switched off, or joined again")


def join(
    data_dir: Path,
    url: str,
    token: str,
    given: Given,
    options: Mapping[str, Any],
    ports: Ports,
    echo: Echo,
) -> None:
    """Makes this machine a further head of the site whose head is at `url`. Raises InputError,
    Refused and OperationFailed."""
    if head_settings.present(data_dir):
        raise Refused(
            f"cannot join: {data_dir} has a head already", hint="move it away if it is not needed"
        )
    chosen = choose(read_machine(), given, None)
    answer = _request_join(url, token, _addresses(chosen.address), ports, witness=False)
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = data_dir / DIRECTORY
    for name in (DIRECTORY, "pki", "secrets"):
        (data_dir / name).mkdir(exist_ok=True, mode=0o700)
    write_atomic(folder / KEY, base64.b64decode(answer.site_key), durable=True)
    _write_files(folder, answer.files)
    write_atomic(data_dir / "pki/ca.pem", answer.authorities, mode=0o644)
    write_atomic(data_dir / "pki/server.key", answer.server["key"])
    write_atomic(data_dir / "pki/server.pem", answer.server["cert"], mode=0o644)
    settings = head_settings.checked(
        {
            "interface": chosen.interface,
            "address": chosen.address,
            "prefix": chosen.prefix,
            "gateway": chosen.gateway,
            "dns": list(chosen.dns),
            **options,
            "heads": {"name": answer.name, "store": answer.store, "prefix": answer.prefix},
        }
    )
    settings = head_settings.checked(site_settings.merged(settings, answer.site.encode()))
    _copy_keys(data_dir, url)
    head_settings.save(data_dir, settings)
    echo(f"this machine is {answer.name} now: `systemctl enable --now layercake` has it follow")
    if answer.peer_url:
        _write_member(data_dir, _member_of(answer))
        _start_store(data_dir, echo)


def witness(
    data_dir: Path, url: str, token: str, address: str | None, ports: Ports, echo: Echo
) -> None:
    """Makes this machine a witness: a member of the store and nothing else. Raises InputError,
    Refused and OperationFailed."""
    if (data_dir / member.FILE).exists() or head_settings.present(data_dir):
        raise Refused(f"cannot be a witness: {data_dir} has a head, or a member of a store")
    addresses = _addresses(address or _address_towards(url))
    answer = _request_join(url, token, addresses, ports, witness=True)
    folder = data_dir / DIRECTORY
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write_files(folder, answer.files)
    _write_member(data_dir, _member_of(answer))
    echo(f"this machine is {answer.name}, a witness of the heads' store")
    _start_store(data_dir, echo)


def _request_join(
    url: str, token: str, addresses: list[str], ports: Ports, *, witness: bool
) -> JoinAnswer:
    _need_etcd()
    request = JoinRequest(token, addresses, __version__, ports.client, ports.peer, witness)
    return ask_to_join(url, request)


def _need_etcd() -> None:
    if shutil.which(member.PROGRAM) is None:
        raise InputError(
            "cannot run a member of the heads' store: etcd is not installed",
            hint="apt-get install etcd-server",
        )


def _addresses(first: str) -> list[str]:
    """This machine's addresses, `first` first: the members see connections come from any."""
    machine = read_machine()
    found = [str(a.ip) for addresses in machine.addresses.values() for a in addresses]
    return list(dict.fromkeys([first, *found]))


def _address_towards(url: str) -> str:
    """The address that this machine has towards a head. Raises InputError."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 443), timeout=10) as s:
            return str(s.getsockname()[0])
    except (OSError, ValueError) as error:
        raise InputError(f"cannot reach {url}: {error}") from None


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    known = (register.CA, register.CERTIFICATE, register.KEY, member.REVOKED)
    for name in known:
        if name in files:
            write_atomic(folder / name, files[name], durable=True)


def _certificates_of(foreign: ForeignStore) -> dict[str, bytes]:
    """What its files hold, by their names here. Raises InputError."""
    files = {register.CA: foreign.ca, register.CERTIFICATE: foreign.cert, register.KEY: foreign.key}
    try:
        return {name: path.read_bytes() for name, path in files.items() if path is not None}
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from None


def _member_of(answer: JoinAnswer) -> MemberFile:
    return MemberFile(answer.name, answer.client_url, answer.peer_url, answer.peers, True)


def _write_member(data_dir: Path, found: MemberFile) -> None:
    write_atomic(data_dir / member.FILE, msgspec.json.encode(found), durable=True)


def _copy_keys(data_dir: Path, url: str) -> None:
    """Copies the authority's key; the rest comes when the head follows. Raises OperationFailed."""
    link = HeadLink(partial(pki.between_heads, Authority(data_dir / "pki")))
    asyncio.run(link.copy(url.rstrip("/"), data_dir, SharedFiles(data_dir), only="pki/"))


def _forget_heads(data_dir: Path) -> None:
    """The database is that of a head that is alone. Raises InputError."""
    path = data_dir / head_settings.DATABASE
    if not path.exists():
        return
    try:
        forget_heads(path)
    except sqlite3.Error as error:
        raise InputError(f"cannot write {path}: {error}") from None


def _start_store(data_dir: Path, echo: Echo) -> None:
    """Has systemd run this machine's member. Debian's own etcd, which starts a member of its own as
    it is installed, is switched off."""
    if Path("/run/systemd/system").exists() and data_dir == head_settings.USUAL:
        _systemctl("disable", "--now", "etcd.service", check=False)
        _systemctl("enable", "--now", "--no-block", UNIT)
    else:
        echo(
            f"its member of the store is run by `layercake heads serve-store --data-dir {data_dir}`"
        )


def _systemctl(*words: str, check: bool = True) -> None:
    try:
        done = subprocess.run(
            ["systemctl", *words],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=SYSTEMD_S,
        )
    except subprocess.TimeoutExpired:
        why = f"systemd does not answer in {SYSTEMD_S:.0f} s"
        raise OperationFailed(f"cannot {' '.join(words)}: {why}") from None
    if check and done.returncode:
        raise OperationFailed(f"cannot {' '.join(words)}: {done.stderr.strip()[:300]}")


def run_store(data_dir: Path) -> None:
    """Becomes this machine's member of the store. Raises InputError."""
    command: Sequence[str] = member.read_command(data_dir)
    _need_etcd()
    os.umask(0o077)
    os.execvp(command[0], list(command))  # noqa: S606
