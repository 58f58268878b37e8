"""The Unix socket of this machine, and who is at it: what the kernel says of the other side."""

from __future__ import annotations

import grp
import os
import pwd
import socket
import struct
from pathlib import Path
from typing import Protocol

from aiohttp import web

from layercake.api.access import NotKnown
from layercake.api.caller import Caller, program_of
from layercake.kraken.errors import InputError, Refused
from layercake.moduleapi.module import Role

SO_PEERGROUPS = 59
"""Linux 4.13: the supplementary groups of the process at the other end."""
_MOST_GROUPS = 256


class SocketSettings(Protocol):
    """Where the socket is, and which group of this machine may use it, as what."""

    @property
    def socket(self) -> str:
        """Its path."""

    @property
    def socket_group(self) -> str:
        """The group, "" for none."""

    @property
    def socket_role(self) -> str:
        """The role that its members have."""


def listen(settings: SocketSettings) -> socket.socket:
    """The Unix socket, open to root and the head's user, or to the group of the settings too. It
    has its name once it listens: who finds it is never refused. Raises InputError and OSError."""
    path = Path(settings.socket)
    group = settings.socket_group
    owner = group_id(group) if group else None
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
        path.parent.chmod(0o711)  # who may use the socket has to get there
    nameless = path.with_name(f".{path.name}")
    nameless.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(
            made.fileno(), 0o600
        )  # before it has a name: whatever the umask, nobody else gets in meanwhile
        made.bind(str(nameless))
        made.listen()
        if owner is not None:
            os.chown(nameless, -1, owner)
            nameless.chmod(0o660)
        nameless.replace(path)
    except BaseException:
        made.close()
        raise
    return made


def group_id(name: str) -> int:
    """The number of a group of this machine. Raises InputError."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise InputError(
            f"cannot open the socket to group {name!r}: this machine has no such group",
            hint="`groupadd` makes one; socket_group in config.yaml names it",
        ) from None


def by_peer(request: web.Request, settings: SocketSettings) -> Caller:
    """Who a request comes from, by the credentials of the process that opened the connection
    (unix(7), SO_PEERCRED): root and the head's own user are admin, members of the group of the
    settings have its role. Raises Refused."""
    found = request.transport.get_extra_info("socket") if request.transport is not None else None
    if found is None or found.family != socket.AF_UNIX:
        raise NotKnown("cannot serve this: nobody knows who is at the other end")
    pid, uid, gid = struct.unpack(
        "3i", found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    name = _user(uid)
    place = f"this machine, process {pid}"
    if uid in (0, os.geteuid()):
        return Caller(
            name, "local", Role.ADMIN, None, True, address=place, program=program_of(request)
        )
    if settings.socket_group and group_id(settings.socket_group) in (gid, *_groups(found)):
        return Caller(
            name,
            "local",
            Role[settings.socket_role.upper()],
            address=place,
            program=program_of(request),
        )
    raise Refused(
        f"cannot serve {name}: the socket is for root"
        + (f" and group {settings.socket_group}" if settings.socket_group else ""),
        hint="use --url with a token, or see socket_group in config.yaml",
    )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _groups(found: socket.socket) -> tuple[int, ...]:
    """The supplementary groups of the other side; none if there are more than anybody has."""
    try:
        data = found.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 4 * _MOST_GROUPS)
    except OSError:
        return ()
    return struct.unpack(f"{len(data) // 4}I", data)
