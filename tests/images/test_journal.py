"""The journal of an image is followed from its first line, also by who asks before there is one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import patience
from sampleimages import systemd_image

from imageapi.node.container import execute, follow
from imageapi.spec.health import Health
from tests.support.images import Node, eventually, spec_of
from tests.support.namespace import run_as_agent

NETWORK = ("pid", "ipc", "uts", "mount", "cgroup", "network")
COMMAND = ("/sbin/init", 'systemd.run="/bin/echo said at the end of the boot"')


def read_until(pieces: Iterator[bytes], text: bytes) -> bytes:
    """What was read when the text was in it."""
    found = b""
    for piece in pieces:
        found += piece
        if text in found:
            return found
    raise AssertionError(f"the journal ended: {found!r}")


def how_it_is(node: Node) -> str:
    """What may keep a container from its journal."""
    command = (
        "systemctl list-jobs; systemctl --failed; cat /etc/machine-id; df /run; ls -lR /run/log; "
        "ls -l /proc/$(pidof systemd-journald)/fd; journalctl --header; journalctl -m -n 3; "
        "journalctl -n 1; echo it ended with $?; timeout 5 journalctl --no-pager -q -f -n all "
        "--since=-5min 2>&1 | tail -n 5; date"
    )
    place = node.images.place("debian")
    said = follow.run(place, ("sh", "-c", command), 20.0, lambda: False)
    return b"".join(data for kind, data in said if kind in ("out", "err")).decode()


@pytest.mark.root
def test_who_asks_before_there_is_a_journal_gets_all_of_it(tmp_path: Path) -> None:
    image = systemd_image("debian-1")

    def body(run: Path) -> None:
        node = Node(run)
        quick = Health("systemd", interval_s=0.3, timeout_s=20.0, retries=1, start_s=100.0)
        spec = spec_of(
            image,
            "debian",
            systemd=True,
            namespaces=NETWORK,
            health=quick,
            command=(*COMMAND, "systemd.run_success_action=none"),
        )
        until = time.monotonic() + patience(60)
        start = threading.Thread(target=node.run, args=(spec,))
        start.start()
        eventually(node.images.instances)
        # On a busy machine the boot is over before the first look.
        place = node.images.place("debian")
        pieces = follow.journal(place, 1000, lambda: time.monotonic() > until)
        try:
            text = read_until(pieces, b"said at the end of the boot")
        except AssertionError as error:
            error.add_note(how_it_is(node))
            raise
        assert b"Starting " in text or b"Started " in text, "what was said before is there too"
        start.join()
        late = follow.journal(node.images.place("debian"), 0, lambda: time.monotonic() > until)
        saying = ("sh", "-c", "while sleep 0.2; do logger said later; done")
        speaker = execute.start(node.images.place("debian"), saying)
        later = read_until(late, b"said later")
        assert b"said at the end of the boot" not in later, "only what is new"
        execute.kill(speaker)
        assert node.images.stop_all() == "IDLE"

    run_as_agent(tmp_path / "run", body)
