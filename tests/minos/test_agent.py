"""The agent as it runs on a node, under its supervisor, against a small head: real TLS, datagrams,
images, containers."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import patience
from smallimages import build_plain_image

from layercake.agents.pki import name_of
from layercake.kraken.mutation import Where, declare
from layercake.kraken.wire import TO_NODE, bearer
from minos.agent.busy import REST
from tests.support.fake_head import UP, FakeHead
from tests.support.nodeclient import NodeClient

pytestmark = [pytest.mark.root, pytest.mark.waits]

ROOT = Path(__file__).resolve().parents[2]
START = """mount -t cgroup2 none /sys/fs/cgroup && cd {root} &&
exec /usr/bin/python3 -sSB -m minos.supervisor --run {run} --stop-containers -- \
  --head {url} --ca {ca} --node {node} --token-file {token} --run {run} --sync {sync} --name n1 --cgroup {cgroup}"""


class Rig:
    """A head, and an agent process."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.run = directory, directory / "run"
        self.head = FakeHead(directory / "pki", str(uuid.uuid4()))
        self.process: subprocess.Popen[bytes] | None = None
        self.cgroup = f"test-{secrets.token_hex(4)}"

    def command(self) -> str:
        """How it is started, with what is to be filled in."""
        return START

    def start(self, token: str = "good-token") -> None:
        (self.directory / "token").write_text(token)
        head = self.head
        command = self.command().format(
            root=ROOT,
            run=self.run,
            url=head.url,
            ca=head.authority,
            node=head.node,
            sync=head.sync,
            token=self.directory / "token",
            cgroup=self.cgroup,
        )
        log = (self.directory / "agent.log").open("ab")
        self.process = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", command],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()

    def output(self) -> str:
        return (self.directory / "agent.log").read_text()

    @property
    def agent(self) -> int:
        return int((self.run / "agent.pid").read_text())

    def container(self) -> int:
        """The pid of the one running container."""
        try:
            found = [json.loads(p.read_text()) for p in (self.run / "images").glob("*.json")]
        except FileNotFoundError:
            return 0  # it was removed meanwhile: what runs is about to change
        running = [record["pid"] for record in found if record["phase"] == "RUNNING"]
        return int(running[0]) if len(running) == 1 else 0

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.head.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    try:
        yield rig
    finally:
        rig.stop()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    directory = tmp_path_factory.mktemp("images")
    return {
        marker: _image(build_plain_image(directory / f"{marker}.squashfs", marker))
        for marker in ("one", "two")
    }


def _image(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    digest = hashlib.blake2b(data, digest_size=32).hexdigest()
    return {
        "name": "app",
        "digest": f"blake2b:{digest}",
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


def test_join_start_roll_log_stop(rig: Rig, images: dict[str, dict[str, Any]]) -> None:
    head = rig.head
    head.document = {"revision": 3, "goal": UP, "images": [images["one"]], "requests": []}
    rig.start()
    head.wait_for(run="SYNC", image="ACTIVE", busy="FREE")
    assert head.joins[0]["boot_id"] and len(head.joins) == 1
    first = rig.container()
    head.want([images["two"]])
    head.wait_for(image="ACTIVE")
    assert rig.container() not in (0, first)
    head.wait(lambda: "image.rolled" in head.kinds())
    rolled = next(e for e in head.events if e["kind"] == "image.rolled")
    assert rolled["data"]["gap_ms"] < patience(1000)
    head.log("app", "two")
    head.ask(8, kind="logs", container="../../etc", lines=5)
    head.wait(lambda: 8 in head.answers)
    assert not head.answers[8]["ok"] and "no such image" in head.answers[8]["error"]
    head.want([images["two"]], goal={"power": "OFF"})
    head.wait_for(run="INIT")
    assert "image.stopped" in head.kinds(), "told before its power may go"
    assert rig.container() == 0


def test_a_command_runs_once_and_is_killed_when_nobody_waits(rig: Rig) -> None:
    head = rig.head
    rig.start()
    head.wait_for(run="SYNC")
    asked = {"kind": "exec", "timeout_s": 600, "most": 1000, "container": ""}
    head.ask(3, **asked, key="a" * 16, command=["echo", "hello"])
    head.wait(lambda: 3 in head.answers)
    assert head.answers[3]["exit"] == 0 and head.answers[3]["out"] == "aGVsbG8K"
    head.ask(4, kind="copy", key="c" * 16, path="/x", digest="0" * 64)
    head.wait(lambda: 4 in head.answers)
    assert "system that is not ours" in head.answers[4]["error"]
    file = rig.directory / "pid"
    head.ask(5, **asked, key="b" * 16, command=["sh", "-c", f"echo $$ > {file}; exec sleep 600"])
    head.wait(lambda: file.exists() and bool(file.read_text().strip()))
    head.want([])
    head.wait(lambda: not Path(f"/proc/{file.read_text().strip()}").exists())
    assert 5 not in head.answers


def test_a_node_that_was_to_go_off_comes_back_when_it_is_wanted_again(
    rig: Rig, images: dict[str, dict[str, Any]]
) -> None:
    head = rig.head
    head.document = {"revision": 3, "goal": UP, "images": [images["one"]], "requests": []}
    rig.start()
    head.wait_for(image="ACTIVE")
    head.want([images["one"]], goal={"power": "OFF"})
    head.wait_for(run="INIT")
    head.want([images["one"]])
    head.wait_for(run="SYNC", image="ACTIVE", busy="FREE")


def test_defect_5_killed_agent_reattaches_without_a_token_and_touches_nothing(
    rig: Rig, images: dict[str, dict[str, Any]]
) -> None:
    head = rig.head
    head.document = {"revision": 3, "goal": UP, "images": [images["one"]], "requests": []}
    rig.start()
    head.wait_for(image="ACTIVE")
    container, agent, said = rig.container(), rig.agent, len(head.hellos)
    os.kill(agent, signal.SIGKILL)
    head.wait(lambda: rig.agent != agent and len(head.hellos) > said + 1)
    head.wait_for(image="ACTIVE")
    assert rig.container() == container
    assert len(head.joins) == 1
    assert head.hellos[-1].sequence > head.hellos[0].sequence
    os.kill(container, 0)


def test_killed_container_is_healed_while_the_head_is_away(
    rig: Rig, images: dict[str, dict[str, Any]]
) -> None:
    head = rig.head
    head.document = {"revision": 3, "goal": UP, "images": [images["one"]], "requests": []}
    rig.start()
    head.wait_for(image="ACTIVE")
    container = rig.container()
    head.silent = True
    os.kill(container, signal.SIGKILL)
    head.wait(lambda: rig.container() not in (0, container), 30)
    head.silent = False
    head.wait_for(image="ACTIVE")
    head.wait(lambda: "container.exited" in head.kinds())


def test_head_restart_is_answered_under_its_new_epoch(rig: Rig) -> None:
    head = rig.head
    head.document = {"revision": 3, "goal": {**UP, "image": "IDLE"}, "images": [], "requests": []}
    rig.start()
    head.wait_for(image="IDLE")
    head.epoch = 2
    head.hellos.clear()
    head.wait(lambda: head.hellos and head.hellos[-1].epoch == 2)
    assert len(head.joins) == 1


def test_a_probe_is_answered_at_once(rig: Rig) -> None:
    head = rig.head
    head.hello_s = 30.0
    head.document = {"revision": 3, "goal": {**UP, "image": "IDLE"}, "images": [], "requests": []}
    rig.start()
    head.wait_for(image="IDLE", busy="FREE")
    said = 0

    def quiet() -> bool:
        nonlocal said
        said = len(head.hellos)
        time.sleep(1.0)
        return len(head.hellos) == said

    head.wait(quiet)  # an answered node says nothing more until its hello timer
    head.probing = True
    head.push()
    head.probing = False
    head.wait(lambda: len(head.hellos) > said, head.hello_s / 2)


def test_busy_is_seen_and_holds_a_roll(rig: Rig, images: dict[str, dict[str, Any]]) -> None:
    head = rig.head
    head.document = {"revision": 3, "goal": UP, "images": [images["one"]], "requests": []}
    rig.start()
    head.wait_for(image="ACTIVE", busy="FREE")
    container = rig.container()
    (rig.run / "busy").touch()
    head.wait_for(busy="BUSY")
    head.want([images["two"]])
    head.wait_for(image="UPDATE")
    head.wait(lambda: "mutation.no-chain" in head.kinds())
    assert rig.container() == container
    (rig.run / "busy.d/slurm-7").touch()  # as a container's `layercake-busy busy slurm-7` does
    (rig.run / "busy").unlink()
    said = len(head.hellos)
    head.wait(lambda: len(head.hellos) > said + 4)
    assert head.state()["busy"] == "BUSY"
    (rig.run / "busy.d/slurm-7").unlink()
    head.wait_for(image="ACTIVE", busy="FREE")
    assert rig.container() != container


def test_busy_is_told_when_it_is_said(rig: Rig) -> None:
    """Not when the agent comes by the files, which is each busy.REST seconds: a dozen changes would
    take a minute."""
    head = rig.head
    head.hello_s = 30.0
    head.document = {"revision": 3, "goal": {**UP, "image": "IDLE"}, "images": [], "requests": []}
    rig.start()
    head.wait_for(image="IDLE", busy="FREE")
    for number in range(6):
        flag = rig.run / ("busy", "busy.d/slurm-7")[number % 2]
        flag.touch()
        head.wait(lambda: head.state()["busy"] == "BUSY", REST / 2)
        flag.unlink()
        head.wait(lambda: head.state()["busy"] == "FREE", REST / 2)


def test_refused_join_is_told_and_not_hammered(rig: Rig) -> None:
    rig.start(token="wrong-token")
    rig.head.wait(lambda: "the token is wrong" in rig.output())
    assert len(rig.head.joins) == 1
    assert "wrong-token" not in rig.output()
    assert rig.process and rig.process.poll() is None


def test_digest_mismatch_ends_fatal_and_a_new_image_recovers(
    rig: Rig, images: dict[str, dict[str, Any]]
) -> None:
    head = rig.head
    bad = {**images["one"], "digest": "blake2b:" + "0" * 64}
    head.document = {"revision": 3, "goal": UP, "images": [bad], "requests": []}
    rig.start()
    head.wait(lambda: head.state().get("image") == "FATAL", 60)
    head.wait(lambda: head.kinds().count("image.digest-mismatch") == 3)
    head.want([images["one"]])
    head.wait_for(image="ACTIVE")


def test_a_changed_mind_during_a_start_is_followed(
    rig: Rig, images: dict[str, dict[str, Any]]
) -> None:
    head = rig.head
    head.document = {"revision": 3, "goal": UP, "images": [images["one"]], "requests": []}
    rig.start()
    head.wait_for(image="ACTIVE")
    for number in range(6):
        head.want([images[("one", "two")[number % 2]]])
        time.sleep(0.02)
    head.wait_for(image="ACTIVE")
    head.log("app", "two")
    assert "image.retry" not in head.kinds(), "no back-off for a change of mind"


def test_a_set_that_is_changed_while_it_starts_has_not_failed(
    rig: Rig, images: dict[str, dict[str, Any]]
) -> None:
    head, container = rig.head, images["one"]["container"]
    undecided = {"kind": "tcp", "port": 9, "start_s": 60}
    head.document = {
        "revision": 3,
        "goal": UP,
        "images": [{**images["one"], "container": {**container, "health": undecided}}],
        "requests": [],
    }
    rig.start()
    head.wait(lambda: "image.started" in head.kinds())
    head.want([images["two"]])
    head.wait_for(image="ACTIVE")
    head.wait(lambda: "image.rolled" in head.kinds())
    assert "mutation.failed" not in head.kinds()


def test_the_agent_serves_its_own_api_and_says_where(
    rig: Rig, images: dict[str, dict[str, Any]]
) -> None:
    head = rig.head
    head.document = {"revision": 3, "goal": UP, "images": [images["one"]], "requests": []}
    rig.start()
    head.wait(lambda: "node.api" in head.kinds())
    head.wait_for(image="ACTIVE")

    def ask() -> dict[str, Any]:
        port = next(e for e in reversed(head.events) if e["kind"] == "node.api")["data"]["port"]
        node = bytes.fromhex(head.node.replace("-", ""))
        client = NodeClient(
            port,
            head.authority,
            name_of(head.node, head.session),
            bearer(head.key, node, head.session, TO_NODE),
        )
        return dict(client.ask("GET", "/v1/status")[1])

    assert ask()["image"] == "ACTIVE" and ask()["containers"][0]["name"] == "app"
    told = [e["data"]["containers"] for e in head.events if e["kind"] == "image.containers"]
    assert [c["state"] for c in told[-1]] == ["running"]
    head.events.clear()
    head.epoch += 1  # the head was started again: it has to hear both anew
    head.wait(lambda: {"node.api", "image.containers"} <= set(head.kinds()))
    head.events.clear()
    os.kill(rig.agent, signal.SIGKILL)
    head.wait(lambda: "node.api" in head.kinds())
    assert ask()["image"] == "ACTIVE", "the session's certificate outlives the agent"
    assert "PRIVATE KEY" not in rig.output()


def test_a_mutation_that_this_minos_lacks_fails_and_says_so(
    rig: Rig, images: dict[str, dict[str, Any]]
) -> None:
    """The node plans by the table that came with the join, also when it is another than its own
    minOS was built for."""
    head = rig.head
    newer = declare(
        "image-launch",
        changes={"image": ("IDLE", "ACTIVE")},
        requires={"run": "SYNC"},
        where=Where.NODE,
    )
    head.mutations = [newer if m.name == "image-start" else m for m in head.mutations]
    head.document = {"revision": 3, "goal": UP, "images": [images["one"]], "requests": []}
    rig.start()
    head.wait(lambda: "mutation.failed" in head.kinds())
    event = next(e for e in head.events if e["kind"] == "mutation.failed")
    assert (
        "cannot image-launch: this node's minOS does not have it (hint: rebuild minOS"
        in event["text"]
    )
    assert event["severity"] == "warning" and event["data"]["mutation"] == "image-launch"


def test_secrets_stay_in_root_only_files(rig: Rig) -> None:
    rig.head.document = {
        "revision": 3,
        "goal": {**UP, "image": "IDLE"},
        "images": [],
        "requests": [],
    }
    rig.start()
    rig.head.wait_for(image="IDLE")
    assert (rig.run / "session.json").stat().st_mode & 0o777 == 0o600
    assert "good-token" not in (rig.run / "session.json").read_text()
    assert "good-token" not in rig.output()
