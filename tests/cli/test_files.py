"""files and ssh-known-hosts: what a person sees, line by line; what is in a file does nothing to
the screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.canned_api import CannedApi

Run = Callable[..., Any]
FILE = {
    "for": ["*"],
    "path": "/etc/motd",
    "size": 3,
    "mode": "0644",
    "owner": "root",
    "group": "root",
    "on_change": "write",
    "secret": False,
    "left": False,
    "error": "",
}


def test_host_keys_are_lines_of_known_hosts(head: CannedApi, run: Run) -> None:
    head.answers["GET /v1/ssh/known-hosts"] = (
        200,
        "n0,10.0.0.1 ssh-ed25519 AAAA\nn1,10.0.0.2 ssh-ed25519 BBBB\n",
    )
    assert (
        run("ssh-known-hosts").out == "n0,10.0.0.1 ssh-ed25519 AAAA\nn1,10.0.0.2 ssh-ed25519 BBBB\n"
    )
    head.answers["GET /v1/ssh/known-hosts"] = (200, "")
    assert run("ssh-known-hosts", "n0").out.startswith("# no node")


def test_a_file_is_shown_line_by_line_and_cannot_touch_the_screen(
    head: CannedApi, run: Run
) -> None:
    head.answers["GET /v1/nodes/n0/files/content"] = (
        200,
        {"files": [{"for": ["*"], "text": "one\n\x1b[31mtwo\n", "error": ""}]},
    )
    done = run("files", "show", "n0", "/etc/motd")
    assert (
        done.out.splitlines()[0] == "one"
        and "\x1b" not in done.out
        and len(done.out.splitlines()) == 2
    )
    head.answers["GET /v1/nodes/n0/files"] = (
        200,
        {
            "node": "n0",
            "current": False,
            "waiting": ["app:/etc/motd"],
            "errors": [],
            "files": [FILE, {**FILE, "error": "line 3: no"}],
        },
    )
    done = run("files", "show", "n0")
    assert "at the image's next start" in done.out and "line 3: no" in done.out and done.code == 1
    assert "has not said yet" in done.err


def test_a_diff_is_shown_line_by_line(head: CannedApi, run: Run) -> None:
    head.answers["POST /v1/files/diff"] = (
        200,
        {
            "changes": [
                {
                    "nodes": ["n0", "n1"],
                    "for": "*",
                    "path": "/etc/motd",
                    "diff": "--- a\n+++ b\n-x\n+y\n",
                    "on_change": "",
                }
            ]
        },
    )
    assert run("files", "diff", "n[0-1]").out.splitlines() == [
        "n[0-1]: /etc/motd for * (images that run have it when they are started next)",
        "--- a",
        "+++ b",
        "-x",
        "+y",
    ]
