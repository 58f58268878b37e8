"""What powerman can be asked about consoles. What attaches to one is for the head alone: it sees to
who may."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from layercake.kraken.errors import InputError
from layercake.moduleapi.module import Call, NodeRequest, Role, call
from powerman.console.search import MOST, PATTERN

if TYPE_CHECKING:
    from powerman.service import PowerService

_Reader = Annotated[str, Meta(max_length=32)]


class ConsoleState(msgspec.Struct):
    """How a node's console is: `state`, why, and who has it if that is somebody else; who reads,
    who has the keyboard, and the bytes of its newest log file."""

    state: str
    why: str
    by: str
    since_s: float
    readers: list[str]
    writer: str
    log_bytes: int


class ConsoleTroubles(msgspec.Struct):
    """`logs` is why what consoles say is not written, "" while it is; `lost` are the consoles that
    cannot be had, each with why, by the head's id of the node."""

    logs: str
    lost: list[tuple[str, str]]


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """Nothing has to be said: it is about no node."""


class LogLine(msgspec.Struct):
    """A line that a console has said, in seconds since the epoch."""

    at: float
    text: str


class LogRequest(NodeRequest, kw_only=True):
    """How many lines, from the end."""

    lines: Annotated[int, Meta(ge=1, le=5000)] = 200


class SearchRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """In the logs of which nodes, by name, and for what."""

    names: Annotated[list[str], Meta(max_length=100_000)]
    pattern: Annotated[str, Meta(min_length=1, max_length=PATTERN)]
    regex: bool = False
    ignore_case: bool = False
    limit: Annotated[int, Meta(ge=1, le=MOST)] = 1000


class WrittenRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Since which moment, as the answer before said; "" for the first time."""

    since: Annotated[str, Meta(max_length=64)] = ""


class WrittenAnswer(msgspec.Struct):
    """The present moment, and the names of the nodes whose logs have changed, null for all: it is
    not known what has."""

    now: str
    names: list[str] | None


class AttachRequest(NodeRequest, kw_only=True):
    """Who attaches, whether for the keyboard too, and whether to take it, and the console, from
    others."""

    who: Annotated[str, Meta(max_length=200)]
    write: bool = False
    take: bool = False


class FollowRequest(NodeRequest, kw_only=True):
    """What came since a position is asked for, or waited for."""

    reader: _Reader
    position: int
    wait_s: Annotated[float, Meta(ge=0, le=15)] = 10.0


class WriteRequest(NodeRequest, kw_only=True):
    """What is typed, in base64, or a break, or that the keyboard is taken."""

    reader: _Reader
    data: Annotated[str, Meta(max_length=16384)] = ""
    send_break: bool = False
    take: bool = False


class ReaderRequest(NodeRequest, kw_only=True):
    """Which reader."""

    reader: _Reader


@call("console.state", role=Role.OPERATOR, answer=ConsoleState)
async def state(service: PowerService, request: NodeRequest) -> ConsoleState:
    """How the node's console is, who reads it, and who has the keyboard."""
    console = service.consoles.of(request.node)
    size = service.consoles.size(request.node)
    return ConsoleState(
        console.state.value,
        console.why,
        console.by,
        console.age_s,
        console.readers.names,
        console.readers.writing,
        size,
    )


@call("console.troubles", role=Role.OPERATOR, request=Nothing, answer=ConsoleTroubles, inside=True)
async def troubles(service: PowerService, request: Nothing) -> ConsoleTroubles:
    """Which consoles cannot be had, and whether what they say is written."""
    return ConsoleTroubles(service.consoles.trouble, service.consoles.lost)


@call("console.log", role=Role.OPERATOR, request=LogRequest, answer=list[LogLine])
async def log(service: PowerService, request: LogRequest) -> list[LogLine]:
    """The last lines of the node's console, as they were kept."""
    return [
        LogLine(at, text) for at, text in await service.consoles.tail(request.node, request.lines)
    ]


@call(
    "console.search", role=Role.OPERATOR, request=SearchRequest, answer=dict[str, Any], inside=True
)
async def search(service: PowerService, request: SearchRequest) -> dict[str, Any]:
    """Look for a pattern in the kept consoles of many nodes."""
    matches, more = await service.consoles.search(
        request.names,
        request.pattern,
        regex=request.regex,
        ignore_case=request.ignore_case,
        limit=request.limit,
    )
    return {
        "matches": [{"node": one.node, "at": one.at, "text": one.text} for one in matches],
        "more": more,
    }


@call(
    "console.attach", role=Role.OPERATOR, request=AttachRequest, answer=dict[str, Any], inside=True
)
async def attach(service: PowerService, request: AttachRequest) -> dict[str, Any]:
    """Begin to read a console, and to write to it if nobody else does."""
    reader, position = service.consoles.open_to(request.node).attach(
        request.who, write=request.write, take=request.take
    )
    return {"reader": reader, "position": position}


@call(
    "console.follow", role=Role.OPERATOR, request=FollowRequest, answer=dict[str, Any], inside=True
)
async def follow(service: PowerService, request: FollowRequest) -> dict[str, Any]:
    """What a console has said since, or how it is, when that has changed."""
    piece = await service.consoles.open_to(request.node).follow(
        request.reader, request.position, request.wait_s
    )
    return {
        "data": base64.b64encode(piece.data).decode(),
        "position": piece.position,
        "lost": piece.lost,
        "state": piece.state,
        "why": piece.why,
        "writer": piece.writer,
        "readers": piece.readers,
        "writes": piece.writes,
    }


@call("console.write", role=Role.OPERATOR, request=WriteRequest, answer=dict[str, Any], inside=True)
async def write(service: PowerService, request: WriteRequest) -> dict[str, Any]:
    """Type, send a break, or take the keyboard."""
    console = service.consoles.open_to(request.node)
    try:
        data = base64.b64decode(request.data, validate=True)
    except binascii.Error:
        raise InputError("cannot write to the console: this is no base64") from None
    if request.take:
        console.take_keyboard(request.reader)
    taken = (
        console.write(request.reader, data, send_break=request.send_break)
        if data or request.send_break
        else 0
    )
    return {"taken": taken}


@call(
    "console.detach", role=Role.OPERATOR, request=ReaderRequest, answer=dict[str, Any], inside=True
)
async def detach(service: PowerService, request: ReaderRequest) -> dict[str, Any]:
    """Leave a console."""
    service.consoles.open_to(request.node).detach(request.reader)
    return {}


@call(
    "console.written", role=Role.OPERATOR, request=WrittenRequest, answer=WrittenAnswer, inside=True
)
async def written(service: PowerService, request: WrittenRequest) -> WrittenAnswer:
    """Which logs have changed, for other heads of the site, which copy them."""
    return WrittenAnswer(*await service.consoles.written_since(request.since))


@call("console.forget", role=Role.ADMIN, answer=dict[str, Any], inside=True)
async def forget(service: PowerService, request: NodeRequest) -> dict[str, Any]:
    """Remove what was kept of a node's console."""
    await service.consoles.forget(request.node)
    return {}


CONSOLE_CALLS: tuple[Call, ...] = (
    state,
    troubles,
    log,
    search,
    attach,
    follow,
    write,
    detach,
    written,
    forget,
)
