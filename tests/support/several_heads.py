"""Several heads of one site as people make them: real processes of `layercake` and etcd, each head
at an address of its own on loopback, in a network namespace."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from patience import patience

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60.0
_LAYERCAKE = (sys.executable, "-m", "layercake.cli.main")
Found = TypeVar("Found")


class SiteOfHeads:
    """The machines of a site by name: the first head is at 127.7.0.1, and so on; all on one
    interface."""

    def __init__(self, directory: Path, network: str = "127.7.0", interface: str = "lo") -> None:
        self.directory = directory
        self._network = network
        self._interface = interface
        self.namespace = f"heads-{os.getpid()}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._addresses: dict[str, str] = {}

    def up(self) -> None:
        """Makes the namespace."""
        subprocess.run(["ip", "netns", "add", self.namespace], check=True)
        subprocess.run(["ip", "-n", self.namespace, "link", "set", "lo", "up"], check=True)

    def down(self) -> None:
        """Ends all that runs, and takes the namespace away."""
        for name in list(self._processes):
            self.kill(name)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False)

    def data(self, name: str) -> Path:
        """The data directory of a machine."""
        return self.directory / name

    def address(self, name: str) -> str:
        """The address of a machine, which it keeps."""
        return self._addresses.setdefault(name, f"{self._network}.{len(self._addresses) + 1}")

    def socket(self, name: str) -> Path:
        """The socket of a head."""
        return self.data(name) / "api.sock"

    def _argv(self, *words: object) -> list[str]:
        inside = ("ip", "netns", "exec", self.namespace)
        return [*inside, *_LAYERCAKE, *map(str, words)]

    def run(self, *words: object, head: str = "") -> subprocess.CompletedProcess[str]:
        """What a command prints; asked of a head by its socket, if one is named."""
        at = ("--socket", self.socket(head)) if head else ()
        return subprocess.run(
            self._argv(*at, *words),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def output(self, *words: object, head: str = "") -> str:
        """The same, of a command that must do."""
        done = self.run(*words, head=head)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    def document(self, *words: object, head: str = "") -> Any:
        """The JSON that it prints."""
        return json.loads(self.output(*words, "--json", head=head))

    def start(self, what: str, name: str) -> None:
        """Starts the head of a machine ("serve"), or its member of the store ("store")."""
        words = ("serve",) if what == "serve" else ("heads", "serve-store")
        with (self.directory / f"{name}.{what}.log").open("ab") as log:
            self._processes[f"{name}.{what}"] = subprocess.Popen(
                self._argv(*words, "--data-dir", self.data(name)),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, which: str, number: int = signal.SIGKILL) -> None:
        """Ends a process of `start`: "NAME.serve" or "NAME.store"."""
        process = self._processes.pop(which)
        process.send_signal(number)
        process.wait()

    @property
    def processes(self) -> list[str]:
        """What was started and not ended by `kill`: "NAME.serve", "NAME.store"."""
        return list(self._processes)

    def runs(self, which: str) -> bool:
        """Whether a process of `start` still runs."""
        return self._processes[which].poll() is None

    def log(self, which: str) -> str:
        """What a process has logged."""
        path = self.directory / f"{which}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self) -> str:
        """The ends of all logs."""
        return "".join(
            f"\n--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.directory.glob("*.log"))
        )

    def wait(self, what: str, seen: Callable[[], Found | None]) -> Found:
        """Waits until something is seen."""
        end = time.monotonic() + patience(LIMIT_S)
        while not (found := seen()):
            assert time.monotonic() < end, f"not seen: {what}{self.logs()}"
            time.sleep(0.1)
        return found

    def heads(self, head: str) -> Any:
        """What `layercake heads` shows there, None while nobody answers."""
        done = self.run("heads", "show", "--json", head=head)
        try:
            found = json.loads(done.stdout)
        except ValueError:
            return None
        return found if "heads" in found else None

    def init(self, name: str, *more: object) -> str:
        """`layercake init` on a machine."""
        words = (
            "--interface",
            self._interface,
            "--address",
            self.address(name),
            "--no-boot",
            "--yes",
        )
        socket = ("--set", f"socket={self.socket(name)}")
        return self.output("init", "--data-dir", self.data(name), *words, *socket, *more)

    def begin(self, name: str, *more: object) -> None:
        """Makes the first head, with more options of `layercake init`."""
        self.init(name, *more)
        self.output("heads", "begin", "--data-dir", self.data(name), "--name", name, "--yes")
        self.start("store", name)
        self.start("serve", name)
        self.wait(f"{name} leads", lambda: self.leads(name, name))

    def leads(self, head: str, asked: str) -> bool:
        """Whether a head leads, as another one sees it, and answers what a leader answers: it
        follows no more some moments before it serves."""
        shown = self.heads(asked)
        if not shown or shown["leader"] != head:
            return False
        return self.run("image", "list", head=head).returncode == 0

    def invite(self, leader: str, name: str, *more: object) -> tuple[str, ...]:
        """The options by which a machine joins."""
        found = self.document("heads", "invite", name, *more, head=leader)
        return ("--join", found["url"], "--token", found["token"])

    def witness(self, leader: str, name: str) -> None:
        """Makes a witness, that has its vote."""
        words = self.invite(leader, name, "--witness")
        own = ("--data-dir", self.data(name), "--address", self.address(name))
        self.output("witness", *own, *words)
        self.start("store", name)
        self.wait(f"{name} has its vote", lambda: self.votes(leader, name))

    def votes(self, leader: str, name: str) -> bool:
        """Whether a member of the store is asked by a head."""
        url = f"https://{self.address(name)}:2379"
        shown = self.heads(leader)
        return bool(shown) and any(
            one["endpoint"] == url and not one["trouble"] for one in shown["members"]
        )

    def join(self, leader: str, name: str) -> None:
        """Makes a further head, that follows with all files, and its member has its vote."""
        self.init(name, *self.invite(leader, name))
        self.start("store", name)
        self.start("serve", name)
        self.wait(f"{name} has its vote", lambda: self.votes(leader, name))
        self.wait(f"{name} follows", lambda: self.has_all(leader, name))

    def has_all(self, asked: str, name: str) -> bool:
        """Whether a head has the files, and the newest entry."""
        shown = self.heads(asked)
        return bool(shown) and any(
            one["head"] == name
            and one["files"] == shown["files"]
            and one["entry"] >= shown["entry"]
            and not one["trouble"]
            for one in shown["heads"]
        )


@contextlib.contextmanager
def site_of_heads(directory: Path) -> Iterator[SiteOfHeads]:
    """A site without heads yet."""
    site = SiteOfHeads(directory)
    site.up()
    try:
        yield site
    finally:
        site.down()
