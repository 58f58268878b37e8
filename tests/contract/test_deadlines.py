"""What waits for somebody else has an end over all, and what somebody else says is read by what
bounds it: whoever connects, asks, serves a stream, runs a program or parses JSON, in any file. What
does it otherwise is named here, with the function that has the end, or with why it needs none."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.contract.test_bounded import ROOT, in_product

FOR_A_PERSON = ("layercake/sim/", "layercake/debian/", "layercake/guess.py", "minos/build/")
"""Builds, the simulation and `init`: a person waits, and nobody else behind him."""
CONNECTS = ("open_connection", "open_unix_connection", "sock_connect", "sock_recv")
STREAMS = ("StreamResponse", "FileResponse")
READS = ("read", "readany", "readline", "iter_any", "iter_chunked", "iter_chunks")
ENDED_BY = {
    "layercake/agents/client.py:answers": "layercake/features/guard/witness.py:_within",
    "layercake/agents/client.py:open": "layercake/agents/client.py:read_answer",
    "layercake/features/logs/otlp.py:send": "layercake/features/logs/sender.py:_some",
    "layercake/features/logs/syslog.py:send": "layercake/features/logs/sender.py:_some",
    "layercake/features/remote/node_routes.py:_content": "",
    "powerman/drivers/sim.py:_open": "powerman/drivers/sim.py:request",
    "powerman/inspect/scan.py:_root": "powerman/inspect/scan.py:by_redfish",
    "powerman/redfish/web.py:__init__": "powerman/redfish/connection.py:_exchange",
    "pxe/dns/forwarder.py:_by_tcp": "pxe/dns/forwarder.py:_of",
    "pxe/dns/forwarder.py:_by_udp": "pxe/dns/forwarder.py:_of",
}
"""{function that waits without an end of its own: the one that has it over it}."""
GOES_ON = {
    "layercake/api/streams.py:send_pieces": "to who is known, for as long as he takes it; "
    "Limits.stall_s ends who does not, and _while_valid who may no more",
    "layercake/features/history/routes.py:clone": "a file, to an administrator of the site",
    "layercake/features/remote/routes.py:_streamed": "as send_pieces; FanOut has the nodes' ends",
    "layercake/features/heads/node_routes.py:_one": "a file, to another head of the site",
    "layercake/heads/copying.py:connected": "files of any size, from the head that leads; SILENT_S",
    "layercake/moduleapi/tls_client.py:session": "for others, who have an end each",
    "pxe/http_server.py:_file": "a boot file, to a stranger: Limits.answer_s",
    "powerman/medium.py:_send": "a boot file, to who has the ticket: Limits.answer_s",
    "imageapi/server.py:_send": "an image takes minutes; a node has 8 connections",
    "layercake/client/websocket.py:open_websocket": "the command line's own: a console",
}
"""{function that need not end: why}."""
BOUNDED = {
    "layercake/agents/client.py": "read_answer: bytes and seconds",
    "layercake/features/access/people.py": "BIGGEST bytes, ANSWER_S seconds",
    "layercake/features/logs/sources.py": "each piece has the budget of its origin",
    "layercake/features/nodes/operations.py": "handed on as it comes, no faster than it is taken",
    "layercake/heads/copying.py": "each file by the size that the leader's list has",
    "layercake/heads/etcd.py": "ANSWER_BYTES bytes, CALL_S seconds",
    "layercake/moduleapi/web.py": "body_of: bytes and seconds",
    "powerman/redfish/web.py": "read_json: bytes; the seconds are those of the request",
}
"""{file that reads what comes of an HTTP connection: by what that is bounded}."""
OWN_JSON = (
    # files, rows and pipes of the product's own
    "imageapi/build/build.py",
    "imageapi/node/container/runtime.py",
    "imageapi/store/rbd",
    "layercake/backup.py",
    "layercake/check/",
    "layercake/features/access/audit.py",
    "layercake/features/access/tokens.py",
    "layercake/features/disks/node_disks.py",
    "layercake/features/files/",
    "layercake/features/guard/",
    "layercake/features/heads/known.py",
    "layercake/features/heads/register.py",
    "layercake/features/heads/invitations.py",
    "layercake/heads/member.py",
    "layercake/features/history/normal.py",
    "layercake/features/machines/table.py",
    "layercake/features/power/passwords.py",
    "layercake/features/releases/table.py",
    "layercake/features/tpm/table.py",
    "layercake/fleet/",
    "layercake/head/addresses.py",
    "layercake/heads/copying.py",
    "layercake/heads/standby.py",
    "layercake/heads/log.py",
    "layercake/moduleapi/client.py",
    "minos/agent/hardware.py",
    "minos/agent/thermal/governor.py",
    "minos/supervisor.py",
    "powerman/console/search.py",
    "powerman/drivers/sim.py",
    "powerman/ipmi/pyghmi_",
    "pxe/dynamic/lease_file.py",
    "pxe/subnet.py",
    # what the head says to its nodes and to people
    "imageapi/spec/objects.py",
    "layercake/client/",
    "layercake/features/calls/commands.py",
    "layercake/features/power/commands.py",
    "layercake/features/remote/commands.py",
    "minos/agent/metadata/answers.py",
    # bounded by who reads it, and any failure is caught
    "layercake/api/gate.py",
    "layercake/base/text.py",
    "layercake/features/access/doors.py",
    "layercake/features/access/people.py",
    "layercake/features/slurm/scontrol.py",
    "layercake/node/api.py",
    *FOR_A_PERSON,
)
"""Files that read JSON by something else than base.text.parse_json."""


def names(tree: ast.AST) -> Iterator[tuple[str, ast.Call, str, bool]]:
    """All calls: by the last word, in which function, and whether an end is over them there."""

    def walk(
        node: ast.AST, function: str, timed: bool
    ) -> Iterator[tuple[str, ast.Call, str, bool]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
            timed = False
        if isinstance(node, ast.AsyncWith):
            timed = timed or any("timeout(" in ast.unparse(i.context_expr) for i in node.items)
        if isinstance(node, ast.Call):
            text = ast.unparse(node.func)
            timed = timed or text.endswith("wait_for")
            yield text.rpartition(".")[2], node, function, timed
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function, timed)

    return walk(tree, "", False)


def waits(name: str, call: ast.Call, timed: bool) -> bool:
    """Whether a call waits for somebody else, and nothing at it says for how long."""
    given = {word.arg: ast.unparse(word.value) for word in call.keywords}
    if name == "run" and ast.unparse(call.func) == "subprocess.run":
        return "timeout" not in given
    if name == "ClientTimeout":
        return not timed and given.get("total", "None") == "None"
    if name == "ClientSession" or (name == "session" and given):
        return not timed and "timeout" not in given
    return not timed and name in (*CONNECTS, *STREAMS)


def endless(path: str, tree: ast.AST) -> Iterator[str]:
    for name, call, function, timed in names(tree):
        where = f"{path}:{function}"
        named = where in ENDED_BY or where in GOES_ON or path.startswith(FOR_A_PERSON)
        if not named and waits(name, call, timed):
            yield f"{path}:{call.lineno}: {name} in {function} has no end over all"


def unbounded(path: str, tree: ast.AST) -> Iterator[str]:
    for name, call, _, _ in names(tree):
        text = ast.unparse(call.func)
        if name in READS and f".content.{name}" in text and path not in BOUNDED:
            yield f"{path}:{call.lineno}: {text} is bounded by nothing that is named"
        parses = text in ("json.loads", "json.load", "msgspec.json.decode")
        if parses and not path.startswith(OWN_JSON):
            yield f"{path}:{call.lineno}: {text}: what comes from outside is for parse_json"


def copied_again(path: str, tree: ast.AST) -> Iterator[str]:
    """Where bytes that come piece by piece are copied whole with each of them."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = list(ast.walk(function))
        plain = {
            ast.unparse(target)
            for line in lines
            if isinstance(line, ast.Assign) and ast.unparse(line.value) == "b''"
            for target in line.targets
        }
        for line in lines:
            if not isinstance(line, ast.AugAssign) or ast.unparse(line.target) not in plain:
                continue
            if "content.read(" in ast.unparse(line.value):
                yield f"{path}:{line.lineno}: a body is gathered in a bytearray"


def test_no_body_is_copied_again_with_each_piece() -> None:
    assert not in_product(copied_again)
    text = "async def f():\n data = b''\n while 1:\n  data += await r.content.read(9)\n"
    assert list(copied_again("x.py", ast.parse(text)))


def test_whatever_waits_has_an_end_over_all() -> None:
    found = in_product(endless)
    assert not found, "\n".join(found)


def test_what_comes_from_outside_is_read_by_what_bounds_it() -> None:
    found = in_product(unbounded)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("where", sorted(ENDED_BY))
def test_the_function_that_has_the_end_has_one(where: str) -> None:
    path, _, function = (ENDED_BY[where] or where).partition(":")
    tree = ast.parse((ROOT / path).read_text())
    assert any(name == "timeout" and inside == function for name, _, inside, _ in names(tree))


@pytest.mark.parametrize("where", sorted([*ENDED_BY, *GOES_ON]))
def test_what_is_named_is_there(where: str) -> None:
    path, _, function = where.partition(":")
    tree = ast.parse((ROOT / path).read_text())
    assert any(
        inside == function and waits(name, call, timed) for name, call, inside, timed in names(tree)
    )


def test_the_walk_sees_what_it_should() -> None:
    text = (
        "async def a():\n await asyncio.open_connection(h, p)\n"
        "async def b():\n async with asyncio.timeout(3):\n  await asyncio.open_connection(h, p)\n"
        "def c():\n subprocess.run(x)\n subprocess.run(x, timeout=3)\n"
        "async def d():\n aiohttp.ClientTimeout(total=None)\n aiohttp.ClientTimeout(total=3)\n"
        "async def e():\n web.FileResponse(p)\n links.session(a=1)\n"
    )
    assert [one.split(":")[1] for one in endless("x.py", ast.parse(text))] == [
        "2",
        "7",
        "10",
        "13",
        "14",
    ]
    text = "await answer.content.read(9)\njson.loads(x)\nmsgspec.json.decode(x)\nparse_json(x)\n"
    assert [one.split(":")[1] for one in unbounded("x.py", ast.parse(text))] == ["1", "2", "3"]
