"""`make demo HEADS=2`: a second head and a witness beside the rack's head, and the end of the first
one with kill -9 while a roll is under way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headclient import HeadRunError
from headrun import ROOT, HeadRun
from vrack.rack import Rack
from vrack.spec import BRIDGE

SECOND, WITNESS = "10.99.0.2", "10.99.0.3"
LIMIT_S = 120.0
ROLL_S = 600.0


class SeveralHeads:
    """The further heads. `step` says what is done, `line` shows what a command says; the paths are
    below `directory`."""

    def __init__(
        self,
        rack: Rack,
        head: HeadRun,
        directory: Path,
        step: Callable[..., None],
        line: Callable[[str], None],
    ) -> None:
        self._rack = rack
        self._step = step
        self._line = line
        self.first = head
        self.second = HeadRun(rack, directory / "head2", disktools=head.disktools)
        self.second.socket = Path("/run") / f"{rack.namespace}-api2.sock"
        self._witness = directory / "witness"
        self._stores: dict[str, subprocess.Popen[Any]] = {}

    def up(self) -> None:
        """Makes the site one of two heads and a witness. Raises HeadRunError."""
        self._step("a second head and a witness: the database goes into a store of three members")
        for address in (SECOND, WITNESS):
            self._rack.run(["ip", "addr", "add", f"{address}/24", "dev", BRIDGE])
        self.first.stop()
        self._run("heads", "begin", "--data-dir", self.first.data, "--name", "head1", "--yes")
        self._store("head1", self.first.data)
        self._begin(self.first)
        self.first.wait("the head leads", lambda: self._serves(self.first), LIMIT_S)
        own = ("--data-dir", self._witness, "--address", WITNESS)
        self._run("witness", *own, *self._invited("witness1", "--witness"))
        self._store("witness1", self._witness)
        self.first.wait("the witness has its vote", lambda: self._members() == 2, LIMIT_S)
        here = ("--data-dir", self.second.data, "--interface", BRIDGE, "--address", SECOND)
        socket = ("--set", f"socket={json.dumps(str(self.second.socket))}")
        self._run("init", *here, *socket, "--no-boot", "--yes", *self._invited("head2"))
        self._store("head2", self.second.data)
        self._begin(self.second)
        self.first.wait("the second head follows", self._follows, LIMIT_S)
        self.first.follow(["heads"], self._line)

    def fail_over(self, nodes: str, image: str) -> None:
        """A roll, and the end of the head that leads in the middle of it: the roll ends all the
        same. Raises HeadRunError."""
        self._step(f"rolling {nodes} to {image}, one node after the other")
        words = ("image", "roll", nodes, image, "--canary", "1", "--batch", "1", "--no-wait")
        if self.first.follow(words, self._line):
            raise HeadRunError("the roll does not begin")
        self.first.wait("a node is rolled", lambda: self._rolled(self.first, image) > 0, LIMIT_S)
        self._step("the head that leads is killed with -9, and its member of the store with it")
        began = time.monotonic()
        self.first.kill()
        self._stores.pop("head1").kill()
        self.second.wait("the second head leads", lambda: self._serves(self.second), LIMIT_S)
        self._step(
            f"the second head leads {time.monotonic() - began:.1f} s later; the roll goes on"
        )
        whole = len(self._rack.nodes)
        self.second.wait("the roll ends", lambda: self._rolled(self.second, image) == whole, ROLL_S)
        self._step(f"all nodes are rolled {time.monotonic() - began:.1f} s after the kill")
        for shown in ("heads", "roll status", "node list"):
            self._line(f"\n$ layercake {shown}")
            self.second.follow(shown.split(), self._line)

    def close(self) -> None:
        """Ends what was started."""
        self.second.close()
        for store in self._stores.values():
            store.send_signal(signal.SIGTERM)
            store.wait()

    # -- the parts

    def _start(self, log: Any, *words: object) -> subprocess.Popen[Any]:
        argv = [sys.executable, "-m", "layercake.cli.main", *map(str, words)]
        environment = self.second.environment
        return self._rack.exec(argv, env=environment, cwd=ROOT, stdout=log, stderr=log)

    def _begin(self, head: HeadRun) -> None:
        with head.log_file.open("ab") as log:
            head.process = self._start(log, "serve", "--data-dir", head.data)

    def _store(self, name: str, data: Path) -> None:
        with (data.parent / f"{name}.store.log").open("ab") as log:
            words = ("heads", "serve-store", "--data-dir", data)
            self._stores[name] = self._start(log, *words)

    def _run(self, *words: object) -> None:
        argv = [sys.executable, "-m", "layercake.cli.main", *map(str, words)]
        self._line(f"\n$ layercake {' '.join(map(str, words[:2]))} ...")
        inside = ["env", f"PYTHONPATH={ROOT}", *argv]
        done = self._rack.run(inside, timeout_s=LIMIT_S)
        if done.returncode:
            raise HeadRunError(f"{words[:2]}: exit {done.returncode}\n{done.stdout}{done.stderr}")

    def _invited(self, name: str, *more: str) -> tuple[str, ...]:
        found = json.loads(self.first.cli("heads", "invite", name, *more, "--json").stdout)
        return ("--join", found["url"], "--token", found["token"])

    def _members(self) -> int:
        """How many members of the store have a vote."""
        shown = self.first.api("GET", "/v1/heads")
        return sum(not member["trouble"] for member in shown["members"])

    def _follows(self) -> bool:
        shown = self.first.api("GET", "/v1/heads")
        return self._members() == 3 and any(
            one["head"] == "head2" and one["files"] == shown["files"] and not one["trouble"]
            for one in shown["heads"]
        )

    @staticmethod
    def _serves(head: HeadRun) -> bool:
        try:
            return head.serving()
        except HeadRunError:  # it follows still
            return False

    @staticmethod
    def _rolled(head: HeadRun, image: str) -> int:
        """How many nodes run an image, and are as they should be."""
        return sum(
            node["status"] == "converged"
            and [one["name"] for one in node["images"]["running"]] == [image]
            for node in head.nodes().values()
        )
