"""A running head as a program talks to it, over its Unix socket: what HeadRun, HostSite and the
benchmarks have in common."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, Any

from patience import patience


class HeadRunError(Exception):
    """The head, or a command, did not do what was expected; the text holds what it said."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket; times are in seconds."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class HeadClient:
    """A head by its socket. `process` is its own process while it runs, which writes to `log_file`.
    It serves when all its modules run but those in `without`."""

    def __init__(self, socket: Path, log_file: Path, without: Collection[str] = ()) -> None:
        self.socket, self.log_file, self.without = socket, log_file, without
        self.process: subprocess.Popen[Any] | None = None

    def serve(
        self, start: Callable[[IO[bytes]], subprocess.Popen[Any]], limit_s: float = 120.0
    ) -> None:
        """Starts its process, whose output goes to the given file; returns when it serves. Raises
        HeadRunError."""
        with self.log_file.open("ab") as log:
            self.process = start(log)
        self.wait("the head serves", self.serving, limit_s)

    def serving(self) -> bool:
        """Whether the API answers and all services run. Raises HeadRunError when the process has
        ended."""
        if self.process is not None and self.process.poll() is not None:
            raise HeadRunError(f"the head has ended:\n{self.log()[-3000:]}")
        try:
            services = self.api("GET", "/v1/status")["services"]
        except (OSError, http.client.HTTPException):
            return False
        return all(s["state"] == "running" for s in services if s["name"] not in self.without)

    def log(self) -> str:
        """The head's own log."""
        return self.log_file.read_text(errors="replace")

    def describe(self) -> str:
        """What one wants to read when something was waited for in vain."""
        return ""

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            process.send_signal(number)
            process.wait(30)

    def api(self, method: str, path: str, body: Any = None, timeout: float = 30.0) -> Any:
        """One request. Raises HeadRunError with the answer when it is an error, OSError when the
        head is away; TimeoutError tells what the head is at."""
        connection = UnixConnection(str(self.socket), timeout)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            answer = connection.getresponse()
            text = answer.read().decode()
        except TimeoutError:
            raise TimeoutError(
                f"{method} {path}: no answer in {timeout:.0f} s\n{self._state()}"
            ) from None
        finally:
            connection.close()
        if answer.status >= 400:
            raise HeadRunError(f"{method} {path}: {answer.status} {text}")
        return json.loads(text)

    def _state(self) -> str:
        """What its process is at, as far as one can see from outside, and the end of its log."""
        told: list[str] = []
        if self.process is not None:
            for name in ("status", "wchan", "stack", "schedstat"):
                with contextlib.suppress(OSError):  # it has ended
                    told.append(
                        Path(f"/proc/{self.process.pid}/{name}").read_text(errors="replace")
                    )
        return "\n".join([*told, "--- log", self.log()[-6000:]])

    def history(self, node: str, kind: str = "") -> list[dict[str, Any]]:
        """A node's events, oldest first."""
        return [
            e for e in self.api("GET", f"/v1/nodes/{node}")["history"] if e["kind"].startswith(kind)
        ]

    def never(self, what: str, condition: Callable[[], Any], seconds: float) -> None:
        """Looks for so many seconds. Raises HeadRunError if a condition is true meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                raise HeadRunError(f"this was not to happen: {what}\n{self.describe()}")
            time.sleep(0.1)

    def wait(self, what: str, condition: Callable[[], Any], limit_s: float) -> float:
        """Waits until a condition is true; returns the seconds it took. Raises HeadRunError with
        the state of things."""
        start = time.monotonic()
        while not condition():
            if time.monotonic() - start > patience(limit_s):
                raise HeadRunError(f"waited {limit_s:.0f} s in vain: {what}\n{self.describe()}")
            time.sleep(0.25)  # each look costs the head some milliseconds
        return time.monotonic() - start
