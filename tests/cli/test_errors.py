"""Exit codes and messages: no traceback for a mistake, nor when the head is away."""

from __future__ import annotations

import contextlib
import json
import socket as sockets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layercake.client import http
from layercake.client.http import error_from_response, path_segment
from layercake.kraken.errors import InputError, NotFound, OperationFailed, Refused
from tests.cli.canned_api import CannedApi

Run = Callable[..., Any]


def test_no_head_is_exit_3_with_a_hint(run: Run, socket: Path) -> None:
    result = run("node", "list")
    assert (result.code, result.out) == (3, "")
    assert (
        result.err
        == f"cannot reach the head at {socket}: No such file or directory\nhint: is `layercake "
        "serve` running?\n"
    )


def test_a_socket_that_nobody_listens_on_is_exit_3(run: Run, socket: Path) -> None:
    with sockets.socket(sockets.AF_UNIX) as left_over:
        left_over.bind(str(socket))
    result = run("status")
    assert result.code == 3
    assert "Connection refused" in result.err


def test_a_socket_path_that_is_too_long_is_exit_3(run: Run) -> None:
    result = run("--socket", "/tmp/" + "x" * 200, "status")
    assert result.code == 3
    assert "cannot reach the head" in result.err


def test_a_head_that_hangs_is_exit_3(
    run: Run, socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections, and says nothing."""
    defaults = http.Client.get.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "timeout", 0.3)
    with sockets.socket(sockets.AF_UNIX) as server:
        server.bind(str(socket))
        server.listen(8)
        result = run("status")
    assert result.code == 3
    assert "no answer in" in result.err and "may still happen" in result.err


def test_a_head_that_hangs_up_is_exit_3(run: Run, socket: Path) -> None:
    with sockets.socket(sockets.AF_UNIX) as server:
        server.bind(str(socket))
        server.listen(8)

        def hang_up() -> None:
            with contextlib.suppress(
                OSError
            ):  # the listening socket is shut down at the end of the test
                while True:
                    connection, _ = server.accept()
                    connection.recv(65536)
                    connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        result = run("status")
        server.shutdown(sockets.SHUT_RDWR)
        thread.join()
    assert result.code == 3
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 2), (404, 2), (422, 2), (401, 4), (403, 4), (409, 4), (500, 1), (502, 1)],
)
def test_the_heads_errors_have_exit_codes(
    run: Run, head: CannedApi, status: int, code: int
) -> None:
    head.answers["GET /v1/status"] = (
        status,
        {"error": "cannot do it: because", "hint": "try this"},
    )
    result = run("status")
    assert (result.code, result.out, result.err) == (
        code,
        "",
        "cannot do it: because\nhint: try this\n",
    )
    result = run("status", "--json")
    assert (result.code, result.err) == (code, "")
    assert json.loads(result.out) == {"error": "cannot do it: because", "hint": "try this"}


@pytest.mark.parametrize(
    "answer",
    [(502, "<html>Bad gateway</html>"), (200, "<html>hello</html>"), (302, ""), (500, "[]")],
)
def test_an_answer_that_is_not_the_heads_is_exit_1(
    run: Run, head: CannedApi, answer: tuple[int, str]
) -> None:
    head.answers["GET /v1/status"] = answer
    result = run("status")
    assert result.code == 1
    assert "hint: " in result.err and "Traceback" not in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nod", "list"],
        ["node"],
        ["node", "clear"],
        ["power", "off"],
        ["power", "cycle"],
        ["node", "off"],
        ["image", "roll", "n0"],
        ["events", "--limit", "0"],
        ["apply"],
        ["graph", "--format", "png"],
        [],
    ],
)
def test_wrong_usage_is_exit_2_and_asks_nothing(
    run: Run, head: CannedApi, arguments: list[str]
) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert "Usage:" in result.err + result.out
    assert not head.requests


def test_wrong_usage_with_json_is_json(run: Run) -> None:
    result = run("node", "lst", "--json")
    assert result.code == 2
    assert "lst" in json.loads(result.out)["error"]


@pytest.mark.parametrize(
    "name", ["../status", "n0/explain", "", "n0?x=1", "a b", "..", "é", "n0%2f"]
)
def test_a_name_cannot_reach_another_route(run: Run, head: CannedApi, name: str) -> None:
    assert run("node", "show", name).code == 2
    assert run("image", "remove", name, "--yes").code == 2
    assert not head.requests
    with pytest.raises(InputError):
        path_segment(name)


def test_interruption_is_exit_130(
    run: Run, head: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("layercake.client.http.Client.get", interrupted)
    assert run("status").code == 130


def test_failures_are_the_right_errors() -> None:
    assert type(error_from_response(403, b'{"error": "x"}')) is Refused
    assert type(error_from_response(400, b'{"error": "x", "hint": null}')) is InputError
    assert type(error_from_response(404, b'{"error": "x"}')) is NotFound
    assert type(error_from_response(500, b"")) is OperationFailed


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("exec",), "`layercake node exec`"),
        (("node", "cycle", "n0"), "`layercake power cycle`"),
        (("statsu",), "`layercake status`"),
        (("node", "mantenance"), "`layercake node maintenance`"),
        (("drain", "n0"), "`layercake node maintenance begin`"),
        (("reboot", "n0"), "`layercake power cycle`"),
        (("files", "list"), "`layercake files show`"),
        (("undrain",), "`layercake node maintenance end`"),
    ],
    ids=str,
)
def test_a_word_that_is_no_command_names_those_that_may_be_meant(
    run: Run, words: tuple[str, ...], meant: str
) -> None:
    result = run(*words)
    assert result.code == 2 and meant in result.err.splitlines()[-1]


def test_a_log_level_may_stand_in_capitals(run: Run, head: CannedApi) -> None:
    head.answers["POST /v1/log-levels"] = (200, {"levels": []})
    assert run("log-level", "pxe", "DEBUG").code == 0
    assert head.requests[-1][2]["level"] == "debug"


def test_a_word_that_nothing_is_like_has_no_hint(run: Run) -> None:
    result = run("xyzzy")
    assert result.code == 2 and "hint" not in result.err


@pytest.mark.parametrize("names", ["n[0-3]", "@rack7", "n0,n1"])
def test_many_nodes_are_explained_by_another_command(run: Run, names: str) -> None:
    result = run("node", "explain", names)
    assert result.code == 2 and f"`layercake explain '{names}'`" in result.err
