"""An agent gives its images the node's own files: before they start, while they run, and not at all
when one cannot be made."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from smallimages import PLAIN_INIT, build_plain_image

from layercake.features.files.entry import Entry
from tests.minos.test_agent import Rig
from tests.support.fake_head import UP

pytestmark = [pytest.mark.root, pytest.mark.waits]

SAYS = PLAIN_INIT.replace("@MARKER@ starts", "$(cat /etc/motd) starts").replace(
    "trap", "trap 'echo hup $(cat /etc/conf)' HUP\ntrap", 1
)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    try:
        yield rig
    finally:
        rig.stop()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = build_plain_image(tmp_path_factory.mktemp("image") / "app.squashfs", "app", script=SAYS)
    data = path.read_bytes()
    return {
        "name": "app",
        "digest": f"blake2b:{hashlib.blake2b(data, digest_size=32).hexdigest()}",
        "size": len(data),
        "url": f"file://{path}",
        "container": {
            "systemd": False,
            "command": None,
            "env": {},
            "stop_timeout_s": 5,
            "restart": "on-failure",
        },
    }


def serve(rig: Rig, mark: str, *entries: Entry) -> None:
    """What the head has for the node from now on; it is told when the document says so."""
    rig.head.files["files/"] = json.dumps(
        {"mark": mark, "files": [entry.to_wire() for entry in entries]}
    ).encode()


def want(rig: Rig, image: dict[str, Any], mark: str, *entries: Entry) -> None:
    serve(rig, mark, *entries)
    rig.head.want([image], files={"mark": mark})


def start(rig: Rig, image: dict[str, Any], mark: str, *entries: Entry) -> None:
    serve(rig, mark, *entries)
    rig.head.document = {
        "revision": 3,
        "goal": UP,
        "images": [image],
        "requests": [],
        "files": {"mark": mark},
    }
    rig.start()


def inside(rig: Rig, path: str) -> str:
    """What is in a file of the container that runs."""
    try:
        return Path(f"/proc/{rig.container()}/root{path}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def motd(text: str, **more: Any) -> Entry:
    return Entry(("*",), "/etc/motd", text.encode(), **more)


def conf(text: str, **more: Any) -> Entry:
    return Entry(("app",), "/etc/conf", text.encode(), **more)


def told(rig: Rig, kind: str) -> list[dict[str, Any]]:
    return [event["data"] for event in rig.head.events if event["kind"] == kind]


def test_files_are_there_before_the_image_starts_and_change_live_where_they_say_so(
    rig: Rig, image: dict[str, Any]
) -> None:
    head = rig.head
    start(
        rig,
        image,
        "one",
        motd("first"),
        conf("1", on_change="signal HUP"),
        Entry(("other",), "/etc/other", b"x"),
    )
    head.wait_for(image="ACTIVE")
    head.log("app", "first starts")
    assert inside(rig, "/etc/conf") == "1" and inside(rig, "/etc/other") == ""
    head.wait(lambda: any(data["mark"] == "one" for data in told(rig, "node.files")))
    container = rig.container()

    want(rig, image, "two", motd("second"), conf("2", on_change="signal HUP"))
    head.log("app", "hup 2")
    head.wait(lambda: any(data["mark"] == "two" for data in told(rig, "node.files")))
    assert inside(rig, "/etc/motd") == "first" and rig.container() == container, (
        "that one waits for the next start"
    )
    assert told(rig, "node.files")[-1]["waiting"] == ["app:/etc/motd"]
    assert told(rig, "node.files-written")[-1]["paths"] == ["/etc/conf"]

    want(rig, image, "three", motd("third", on_change="restart"), conf("2", on_change="signal HUP"))
    head.log("app", "third starts")
    head.wait(lambda: rig.container() not in (0, container) and head.state()["image"] == "ACTIVE")
    head.wait(lambda: told(rig, "node.files")[-1] == {"mark": "three", "waiting": [], "errors": []})


def test_a_restart_for_a_file_waits_while_the_node_is_busy(rig: Rig, image: dict[str, Any]) -> None:
    head = rig.head
    start(rig, image, "one", motd("first"))
    head.wait_for(image="ACTIVE", busy="FREE")
    container = rig.container()
    (rig.run / "busy").touch()
    head.wait_for(busy="BUSY")
    want(rig, image, "two", motd("second", on_change="restart"))
    head.wait_for(image="UPDATE")
    head.wait(lambda: "mutation.no-chain" in head.kinds())
    assert rig.container() == container
    (rig.run / "busy").unlink()
    head.wait(lambda: rig.container() not in (0, container))
    head.log("app", "second starts")


def test_an_image_does_not_start_without_a_file_and_does_when_it_is_there(
    rig: Rig, image: dict[str, Any]
) -> None:
    head = rig.head
    start(rig, image, "one", Entry(("*",), "/etc/motd", error="line 3: 'nope' is undefined"))
    head.wait_for(image="ERROR")
    why = "cannot give image app its file /etc/motd: line 3: 'nope' is undefined"
    head.wait(lambda: any(why in e["text"] for e in head.events))
    assert rig.container() == 0
    want(rig, image, "two", motd("well"))
    head.wait_for(image="ACTIVE")
    head.log("app", "well starts")
    want(rig, image, "three", Entry(("*",), "/etc/motd", error="line 1: no"))
    head.wait(lambda: any(data["mark"] == "three" for data in told(rig, "node.files")))
    os.kill(rig.container(), signal.SIGKILL)
    head.wait(lambda: "container.exited" in head.kinds())
    head.wait_for(image="ACTIVE")
    assert inside(rig, "/etc/motd") == "well", "the last good one is kept"


def test_an_agent_that_starts_again_knows_its_files_without_the_head(
    rig: Rig, image: dict[str, Any]
) -> None:
    head = rig.head
    start(rig, image, "one", motd("first"))
    head.wait_for(image="ACTIVE")
    container, agent = rig.container(), rig.agent
    assert (rig.run / "files.json").stat().st_mode & 0o777 == 0o600
    del head.files["files/"]
    head.silent = True
    os.kill(agent, signal.SIGKILL)
    head.wait(lambda: rig.agent != agent)
    os.kill(container, signal.SIGKILL)
    head.wait(lambda: rig.container() not in (0, container))
    assert inside(rig, "/etc/motd") == "first"
    head.silent = False


def test_a_head_that_says_nothing_of_files_leaves_everything_as_it_is(
    rig: Rig, image: dict[str, Any]
) -> None:
    head = rig.head
    head.document = {"revision": 3, "goal": UP, "images": [image], "requests": []}
    rig.start()
    head.wait_for(image="ACTIVE")
    assert not (rig.run / "files.json").exists() and "node.files" not in head.kinds()
