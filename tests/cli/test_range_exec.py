"""`layercake node exec`, `node logs` and `node copy` of many nodes: what is asked, what is shown, and
how it ends."""

from __future__ import annotations

import base64
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import patience

from layercake.features.remote.commands import MAX_COPY, nameless
from tests.cli.canned_api import CannedApi

Run = Callable[..., Any]


def lines(*answers: dict[str, Any], nodes: str = "n[0-3]", count: int = 4) -> str:
    return "".join(json.dumps(a) + "\n" for a in ({"range": nodes, "count": count}, *answers))


def answer(node: str, out: str = "", err: str = "", **more: Any) -> dict[str, Any]:
    texts = {"out": out, "err": err}
    encoded = {k: base64.b64encode(v.encode()).decode() for k, v in texts.items() if v}
    return {"node": node, "exit": 0, **encoded, **more}


FAILED: dict[str, Any] = {"exit": None, "begun": False}
MIXED = lines(
    answer("n0", "same\n"),
    answer("n1", "other\n", "why\n", exit=3),
    answer("n3", "same\n"),
    answer("n2", **FAILED, error="cannot reach n2: its agent did not answer in 15 s"),
)


def test_equal_output_is_folded_and_the_nodes_too(run: Run, head: CannedApi) -> None:
    head.answers["POST /v1/nodes/exec"] = (200, MIXED)
    words = ("--in-image", "web", "--timeout", "5", "--total-timeout", "60", "--fan-out", "8")
    result = run("node", "exec", "n[0-3]", *words, "--", "ls", "-l")
    rule = "-" * 15
    assert result.out.splitlines() == [
        *(rule, "n[0,3] (2)", rule, "same"),
        *(rule, "n1 (1): exit status 3", rule, "other", "why"),
        *(rule, "n2 (1): cannot reach the node: its agent did not answer in 15 s", rule),
    ]
    assert result.err == "4 nodes: 2 done, 1 with exit status 3 (n1), 1 not reached (n2)\n"
    assert result.code == 1
    assert head.requests[-1][2] == {
        "range": "n[0-3]",
        "command": ["ls", "-l"],
        "container": "web",
        "timeout_s": 5.0,
        "total_s": 60.0,
        "fan_out": 8,
    }


def test_all_well_is_0(run: Run, head: CannedApi) -> None:
    well = lines(*(answer(f"n{i}") for i in range(4)))
    head.answers["POST /v1/nodes/exec"] = (200, well)
    result = run("node", "exec", "@all", "true")
    assert (result.code, result.err) == (0, "4 nodes: 4 done\n")
    assert "n[0-3] (4)" in result.out.splitlines()


def test_an_answer_that_is_cut_off_is_no_success(run: Run, head: CannedApi) -> None:
    head.answers["POST /v1/nodes/exec"] = (200, lines(answer("n0"), answer("n1")))
    result = run("node", "exec", "n[0-3]", "true")
    assert result.code == 1 and "cut off (n[2-3])" in result.err


def test_a_line_for_each_node_as_they_come(run: Run, head: CannedApi) -> None:
    head.answers["POST /v1/nodes/exec"] = (200, MIXED)
    result = run("node", "exec", "n[0-3]", "--no-fold", "true")
    assert result.out.splitlines() == ["n0: same", "n1: other", "n3: same"]
    assert result.err.splitlines()[:3] == [
        "n1: why",
        "n1: exit status 3",
        "n2: cannot reach the node: its agent did not answer in 15 s",
    ]


def test_with_json_there_is_a_line_for_each_node(run: Run, head: CannedApi) -> None:
    head.answers["POST /v1/nodes/exec"] = (200, MIXED)
    result = run("node", "exec", "n[0-3]", "--json", "--", "true", "--json")
    documents = [json.loads(line) for line in result.out.splitlines()]
    assert [d["node"] for d in documents] == ["n0", "n1", "n3", "n2"] and result.code == 1
    assert (documents[1]["exit"], documents[1]["out"], documents[1]["err"]) == (
        3,
        "other\n",
        "why\n",
    )
    assert documents[3]["begun"] is False and documents[3]["exit"] is None


def test_one_node_can_be_asked_as_many_are(run: Run, head: CannedApi) -> None:
    head.answers["POST /v1/nodes/exec"] = (200, lines(answer("n0", "x\n"), nodes="n0", count=1))
    assert run("node", "exec", "n0", "--no-fold", "true").out == "n0: x\n"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("cannot reach n1: away", "cannot reach the node: away"),
        ("n1 says: n10 and xn1 and n1.a are others", "the node says: n10 and xn1 and the node.a"),
    ],
)
def test_an_error_is_the_same_on_all_nodes(said: str, shown: str) -> None:
    assert nameless(said, "n1").startswith(shown)


def test_hostile_output_does_not_reach_a_terminal(
    run: Run, head: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = "\x1b]0;title\x07\x1b[2Jgone\n"
    head.answers["POST /v1/nodes/exec"] = (200, lines(answer("n0", evil), nodes="n0", count=1))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for words in ((), ("--no-fold",)):
        result = run("node", "exec", "n[0]", *words, "true")
        assert "\x1b]" not in result.out and "\x1b[2J" not in result.out and "gone" in result.out


def test_hostile_output_that_is_folded_is_escaped_in_a_pipe_too(run: Run, head: CannedApi) -> None:
    said = "\x1b]0;evil\x07\x1b[2J\x9b31mred\u202e\r\nnext\tline\n"
    head.answers["POST /v1/nodes/exec"] = (200, lines(answer("n0", said), nodes="n0", count=1))
    out = run("node", "exec", "n[0-3]", "--", "x").out
    assert "\\x1b]0;evil\\x07" in out and "next\tline" in out
    assert not set(out) & set("\x1b\x07\x9b\u202e\r")


def test_an_interrupt_says_what_goes_on(tmp_path: Path) -> None:
    """The head is left in the middle: what is known of it is said."""
    path = tmp_path / "s"
    program = [sys.executable, "-m", "layercake.cli.main", "--socket", str(path)]
    words = ["node", "exec", "n[0-3]", "--timeout", "7", "--no-fold", "sleep", "600"]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(patience(30.0))
        pipe = subprocess.PIPE
        with subprocess.Popen([*program, *words], text=True, stdout=pipe, stderr=pipe) as running:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"
                connection.sendall((head + lines(answer("n0", "x\n"))).encode())
                assert running.stdout is not None and running.stdout.readline() == "n0: x\n"
                running.send_signal(signal.SIGINT)
                _, errors = running.communicate(timeout=patience(30))
    assert running.returncode == 130, errors
    assert "it stopped on n[1-3]" in errors and "7 s at most" in errors


def test_logs_of_many(run: Run, head: CannedApi) -> None:
    said = [{"node": f"n{i}", "text": "a\nb"} for i in range(4)]
    head.answers["GET /v1/logs"] = (200, lines(*said))
    result = run("node", "logs", "n[0-3]", "--in-image", "web", "--lines", "5")
    assert result.out.splitlines()[1:] == ["n[0-3] (4)", "-" * 15, "a", "b"] and result.code == 0
    assert head.requests[-1][1] == {"range": "n[0-3]", "container": "web", "lines": "5"}
    result = run("node", "logs", "n[0-3]", "--follow")
    assert result.code == 2 and "only that of one node" in result.err


def test_a_file_is_copied(run: Run, head: CannedApi, tmp_path: Path) -> None:
    file = tmp_path / "tool"
    file.write_bytes(b"\x00\xff")
    file.chmod(0o755)
    done = [{"node": "n0", "changed": True}, {"node": "n1", "changed": False}]
    head.answers["POST /v1/nodes/copy"] = (200, lines(*done, nodes="n[0-1]", count=2))
    result = run("node", "copy", str(file), "n[0-1]:/opt/", "--owner", "slurm")
    assert result.code == 0 and "n0 (1): written" in result.out
    assert "n1 (1): was the same already" in result.out
    body = head.requests[-1][2]
    assert (body["range"], body["path"], body["mode"]) == ("n[0-1]", "/opt/tool", 0o755)
    assert (body["owner"], body["content"]) == ("slurm", {"base64": "AP8="})
    run("node", "copy", str(file), "@all:/opt/other", "--mode", "0600")
    assert (head.requests[-1][2]["path"], head.requests[-1][2]["mode"]) == ("/opt/other", 0o600)


@pytest.mark.parametrize(
    ("target", "mode", "why"),
    [
        ("n0", "", "RANGE:PATH is expected"),
        ("n0:tmp/x", "", "RANGE:PATH is expected"),
        (":/tmp/x", "", "RANGE:PATH is expected"),
        ("n0:/tmp/x", "rwx", "octal"),
        ("n0:/tmp/x", "77777", "octal"),
    ],
)
def test_what_is_no_target_is_refused(
    run: Run, head: CannedApi, tmp_path: Path, target: str, mode: str, why: str
) -> None:
    file = tmp_path / "x"
    file.touch()
    result = run("node", "copy", str(file), target, *(["--mode", mode] if mode else []))
    assert result.code == 2 and why in result.err and not head.requests


def test_a_large_file_is_refused_before_it_is_sent(
    run: Run, head: CannedApi, tmp_path: Path
) -> None:
    file = tmp_path / "large"
    with file.open("wb") as stream:
        stream.truncate(MAX_COPY + 1)
    result = run("node", "copy", str(file), "n0:/tmp/x")
    assert result.code == 2 and "larger than 8 MiB" in result.err and not head.requests
