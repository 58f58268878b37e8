"""An agent is replaced while it runs: by one that the head has signed, through the supervisor, and
no container notices."""

from __future__ import annotations

import io
import os
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minos.build import builder, python
from tests.minos.test_agent import START, Rig, images  # noqa: F401 (a fixture)
from tests.support.fake_head import UP

pytestmark = [pytest.mark.root, pytest.mark.waits]

TRIAL = """import sys; sys.path.insert(0, {root!r}); import minos.programs; minos.programs.TRIAL_S = {trial}
from minos.supervisor import main; main(sys.argv[1:])"""


@pytest.fixture(scope="module")
def agent() -> bytes:
    """The agent of this checkout, as a boot set has it."""
    interpreter = python.own()
    return python.agent(interpreter, python.closure(interpreter, builder.ROOT, builder.ENTRIES))


class SwapRig(Rig):
    """An agent of the boot set "first", under a supervisor that tries others for `trial`
    seconds."""

    trial = 60.0

    def command(self) -> str:
        script = self.directory / "supervisor.py"
        script.write_text(TRIAL.format(root=str(builder.ROOT), trial=self.trial))
        return START.replace("-m minos.supervisor", str(script)) + " --boot first"

    def begin(self, image: dict[str, Any]) -> int:
        self.head.document = {"revision": 3, "goal": UP, "images": [image], "requests": []}
        self.start()
        self.head.wait_for(image="ACTIVE")
        return self.container()

    def runs(self) -> str:
        """Whose agent it was that spoke last."""
        told = [e["data"]["agent"] for e in self.head.events if e["kind"] == "agent.runs"]
        return str(told[-1]) if told else ""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[SwapRig]:
    rig = SwapRig(tmp_path)
    try:
        yield rig
    finally:
        rig.stop()


def test_an_agent_is_replaced_and_no_container_notices(
    rig: SwapRig,
    images: dict[str, dict[str, Any]],  # noqa: F811
    agent: bytes,
) -> None:
    container, first, head = rig.begin(images["one"]), rig.agent, rig.head
    assert head.joins[0]["boot"] == head.joins[0]["agent"] == "first"
    head.hand_over("second", agent, ask=1)
    head.wait(lambda: rig.runs() == "second" and "agent.swapped" in head.kinds())
    assert rig.agent != first and rig.container() == container and len(head.joins) == 1
    second = rig.agent
    assert (
        str(rig.run / "agent" / "second.zip").encode()
        in Path(f"/proc/{second}/cmdline").read_bytes()
    )

    os.kill(second, signal.SIGKILL)
    head.wait(
        lambda: rig.agent != second and [e for e in head.events if e["kind"] == "agent.runs"][2:]
    )
    assert rig.runs() == "second", "a new agent that was good once is started again after it died"

    head.want([images["two"]])
    head.wait_for(image="ACTIVE")
    head.wait(lambda: rig.container() not in (0, container))  # it does its work
    container = rig.container()
    head.document = {
        **head.document,
        "revision": head.document["revision"] + 1,
        "agent": {"set": "first", "ask": 2},
    }
    head.push()
    head.wait(lambda: rig.runs() == "first")
    assert rig.container() == container and len(head.joins) == 1


def test_what_the_head_has_not_signed_is_never_run(
    rig: SwapRig,
    images: dict[str, dict[str, Any]],  # noqa: F811
    agent: bytes,
) -> None:
    container, first, head = rig.begin(images["one"]), rig.agent, rig.head
    stranger = head.certificates.sign(b"something else")
    head.hand_over("second", agent, ask=1, signature=stranger)
    head.wait(lambda: "agent.swap-failed" in head.kinds())
    head.hand_over("second", agent, ask=2, sent=agent[:-1] + b"x")
    head.wait(lambda: head.kinds().count("agent.swap-failed") == 2)
    unsigned, other = (e["text"] for e in head.events if e["kind"] == "agent.swap-failed")
    assert (
        "not signed by the head's authority" in unsigned and "not what the head has signed" in other
    )
    assert (rig.agent, rig.container()) == (first, container) and not list(
        (rig.run / "agent").glob("*.zip")
    )


def broken(source: str) -> bytes:
    """An agent whose entry point is this."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in ("layercake", "layercake/node"):
            archive.writestr(f"{name}/__init__.py", "")
        archive.writestr("layercake/node/main.py", source)
    return data.getvalue()


ENDS, HANGS = (
    "def main(arguments): raise SystemExit(3)",
    "import time\ndef main(arguments): time.sleep(1000)",
)


MUTE = """import os, time
def main(arguments):
    run = arguments[arguments.index("--run") + 1]
    open(run + "/agent/ready", "w").write(os.environ["LAYERCAKE_AGENT"])
    os.read(int(os.environ["LAYERCAKE_TURN"]), 1)
    time.sleep(1000)
"""


@pytest.mark.parametrize("source", [ENDS, HANGS, MUTE], ids=["ends", "hangs", "mute"])
def test_a_new_agent_that_does_not_report_is_given_up(
    rig: SwapRig,
    images: dict[str, dict[str, Any]],  # noqa: F811
    source: str,
) -> None:
    rig.trial = 3.0
    container, first, head = rig.begin(images["one"]), rig.agent, rig.head
    head.hand_over("second", broken(source), ask=1)
    head.wait(lambda: "agent.swap-failed" in head.kinds())
    told = next(e for e in head.events if e["kind"] == "agent.swap-failed")
    assert told["data"]["ask"] == 1 and "second was given up" in told["text"]
    head.wait_for(image="ACTIVE", run="SYNC")
    assert rig.runs() == "first" and rig.container() == container and len(head.joins) == 1
    assert (rig.agent == first) == (source != MUTE), "it goes on until the other one is ready"
    os.kill(rig.agent, signal.SIGKILL)
    runs = head.kinds().count("agent.runs")
    head.wait(lambda: head.kinds().count("agent.runs") > runs)
    head.push()
    head.wait_for(image="ACTIVE")
    assert head.kinds().count("agent.swap-failed") == 1, "it is told once, and not tried again"
    assert rig.container() == container
