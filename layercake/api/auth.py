"""Who is at the door: on the Unix socket, what the kernel says of the other side; on the network, a
bearer token, or the session of a browser."""

from __future__ import annotations

import grp
import json
import os
import pwd
import secrets
import socket
import struct
import time
from dataclasses import replace
from pathlib import Path

from aiohttp import web

from layercake.agents.pki import client_name
from layercake.base.files import write_atomic
from layercake.features.access.caller import Caller, printable
from layercake.features.access.people import People
from layercake.features.access.sessions import Sessions
from layercake.features.access.tokens import FILE_NAME, Token, Tokens, blake2b
from layercake.head.settings import Settings
from layercake.kraken.errors import InputError, Refused
from layercake.moduleapi.module import Role
from layercake.moduleapi.web import shown

SO_PEERGROUPS = 59
"""Linux 4.13: the supplementary groups of the process at the other end."""
_MOST_GROUPS = 256
_PROGRAM, LONGEST = 120, 512
COOKIE = "__Host-layercake"
"""The session of a browser. By its prefix a browser takes it over TLS only, for this host and all
of it (RFC 6265bis, 4.1.3)."""
OWN = "X-Layercake"
"""The header that our own page sends with each request."""


class NotKnown(Refused):
    """Nobody knows who asks."""


def name_of(header: str) -> str:
    """What a connection with this Authorization header is counted under: the token cannot be told
    from it."""
    return f"token {blake2b(header)[:16]}"


def name_of_session(caller: Caller) -> str:
    """The same for a session: each has its own connections."""
    return f"session {caller.session}"


def create(directory: Path) -> Path:
    """Makes an admin token: its digest goes to tokens.json, which the head reads when it starts,
    the token to admin.token (0600), whose path is returned."""
    token = secrets.token_urlsafe(32)
    for name, text in (
        (FILE_NAME, json.dumps({blake2b(token): "admin"})),
        ("admin.token", token + "\n"),
    ):
        write_atomic(directory / name, text)
    return directory / "admin.token"


async def by_token(request: web.Request, tokens: Tokens, people: People) -> Caller:
    """Who a request comes from, by its Authorization header: a token of ours, or of the site's
    identity provider. Raises NotKnown, and what People.find raises."""
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    return await of_token(
        request, text.strip() if scheme.lower() == "bearer" else "", tokens, people
    )


async def of_token(request: web.Request, text: str, tokens: Tokens, people: People) -> Caller:
    """Whose a token is. Raises as by_token."""
    if (
        people.knows(text)
        and (person := await people.find(text, request.remote or "", _program(request))) is not None
    ):
        return person
    found = tokens.find(text) if 0 < len(text) <= LONGEST else None
    if found is None:
        raise NotKnown(
            "cannot serve this: it needs a token that is valid", hint="Authorization: Bearer TOKEN"
        )
    _certified(request, found)
    return Caller(
        found.name,
        "token",
        found.rank,
        found.groups,
        found.exec,
        request.remote or "",
        _program(request),
        found.id,
        found.expires,
    )


def _certified(request: web.Request, token: Token) -> None:
    if (
        token.certificate
        and shown(request.transport).get(client_name(token.id), 0.0) <= time.time()
    ):
        raise NotKnown(
            "cannot serve this: this token needs its certificate, and one that is not over",
            hint="`layercake --cert FILE`",
        )


def by_session(request: web.Request, sessions: Sessions, tokens: Tokens) -> Caller:
    """Who a request comes from, by the cookie of its session. Raises NotKnown for one that is over,
    or whose token is, and Refused for what another site's page has sent: a browser adds the cookie
    to that too."""
    text = request.cookies[COOKIE]
    found = sessions.find(text) if len(text) <= LONGEST else None
    if found is None:
        raise NotKnown("cannot serve this: the session is over", hint="sign in again")
    from_own_page(request)
    if found.kind == "token":
        token = tokens.known(found.token)
        if token is None:
            sessions.end(text)
            raise NotKnown(
                "cannot serve this: the session is over, and so is its token",
                hint="sign in with another token",
            )
        _certified(request, token)
    return replace(found, address=request.remote or "", program=_program(request))


def from_own_page(request: web.Request) -> None:
    """Raises Refused unless a request was sent by a page of this head. Another site's page can set
    neither Origin nor, without asking first, a header of its own; a WebSocket is opened without
    headers of the page."""
    own = request.headers.get("Origin", "") == f"https://{request.host}"
    if request.headers.get("Upgrade", "").lower() == "websocket":
        fine = own
    else:
        fine = request.headers.get(OWN) == "1" and (own or request.method == "GET")
    if not fine:
        raise Refused(
            "cannot serve this: it was not sent by a page of this head", hint="programs use a token"
        )


def _program(request: web.Request) -> str:
    return printable(request.headers.get("User-Agent", ""), _PROGRAM)


# -- the socket of this machine


def listen(settings: Settings) -> socket.socket:
    """The Unix socket, open to root and the head's user, or to the group of the settings too.
    Raises InputError and OSError."""
    path, group = Path(settings.socket), settings.socket_group
    owner = group_id(group) if group else None
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
        path.parent.chmod(0o711)  # who may use the socket has to get there
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(
            made.fileno(), 0o600
        )  # before it has a name: whatever the umask, nobody else gets in meanwhile
        made.bind(str(path))
        if owner is not None:
            os.chown(path, -1, owner)
            path.chmod(0o660)
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


def by_peer(request: web.Request, settings: Settings) -> Caller:
    """Who a request comes from, by the credentials of the process that opened the connection
    (unix(7), SO_PEERCRED): root and the head's own user are admin, members of the group of the
    settings have its role. Raises Refused."""
    found = request.transport.get_extra_info("socket") if request.transport is not None else None
    if found is None or found.family != socket.AF_UNIX:
        raise NotKnown("cannot serve this: nobody knows who is at the other end")
    pid, uid, gid = struct.unpack(
        "3i", found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    name, place = _user(uid), f"this machine, process {pid}"
    if uid in (0, os.geteuid()):
        return Caller(
            name, "local", Role.ADMIN, None, True, address=place, program=_program(request)
        )
    if settings.socket_group and group_id(settings.socket_group) in (gid, *_groups(found)):
        return Caller(
            name,
            "local",
            Role[settings.socket_role.upper()],
            address=place,
            program=_program(request),
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
