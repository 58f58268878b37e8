"""The kinds of health checks, each begun at once and finished by small steps; none ever blocks."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import selectors
import socket
from collections.abc import Sequence

from imageapi.node.container import execute
from imageapi.node.container.execute import ExecContext
from imageapi.node.container.process import alive
from imageapi.node.health import systemd
from imageapi.node.health.watch import Probe
from imageapi.spec.health import Health
from layercake.kraken.errors import LayercakeError, OperationFailed

CLONE_NEWNET = 0x40000000
ADDRESS = "127.0.0.1"
OUTPUT_LIMIT = 400
STATUS_LIMIT = 2048
SYSTEM_LIMIT = 65536
MOST_SAID = 1 << 20
"""Bytes that a check may say."""
_libc = ctypes.CDLL(None, use_errno=True)

Result = tuple[bool, str]


def begin(check: Health, place: ExecContext) -> Probe | Result:
    """Begins a check of a container; one that cannot even begin has failed (watch.Begin)."""
    try:
        if place.process is not None and not alive(place.process):
            return False, "the container does not run"
        if check.kind == "exec":
            return ProcessProbe(place, check.command)
        if check.kind == "systemd":
            return (
                ProcessProbe(place, ("systemctl", "is-active", check.unit))
                if check.unit
                else SystemProbe(place, check)
            )
        link = connect(place, check.port)
        return HttpProbe(link, check.path) if check.kind == "http" else TcpProbe(link)
    except (OSError, LayercakeError) as error:
        return False, str(error)


def connect(place: ExecContext, port: int) -> socket.socket:
    """A socket in the container's network namespace, connecting. Raises OSError or OperationFailed.

    setns(2) with CLONE_NEWNET moves only this thread, and a socket stays where it was made.
    """
    if place.process is None or "network" not in place.namespaces:
        return _connecting(port)
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        theirs = os.open(f"/proc/{place.process.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(theirs)
        finally:
            os.close(theirs)
        try:
            return _connecting(port)
        finally:
            _enter(own)
    finally:
        os.close(own)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, CLONE_NEWNET):
        raise OperationFailed(
            f"cannot enter the container's network: {os.strerror(ctypes.get_errno())}"
        )


def _connecting(port: int) -> socket.socket:
    link = socket.socket(
        socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    )
    try:
        code = link.connect_ex((ADDRESS, port))
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
    except BaseException:
        link.close()
        raise
    return link


class TcpProbe:
    """A connection that is taken."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self.events = selectors.EVENT_WRITE

    def fileno(self) -> int:
        """The socket."""
        return self._link.fileno()

    def step(self) -> Result | None:
        """The connection is decided."""
        code = self._link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return (False, os.strerror(code)) if code else self.connected()

    def connected(self) -> Result | None:
        """What follows from a connection."""
        return True, ""

    def close(self) -> None:
        """Closes the connection."""
        self._link.close()


class HttpProbe(TcpProbe):
    """A GET that is answered with 200 to 399; only the status line is read."""

    def __init__(self, link: socket.socket, path: str) -> None:
        super().__init__(link)
        self._request = (
            f"GET {path} HTTP/1.0\r\nHost: localhost\r\nUser-Agent: layercake-health\r\n\r\n"
        ).encode()
        self._answer = b""

    def connected(self) -> Result | None:
        """Sends the request; it fits any socket buffer."""
        self._link.send(self._request)
        self.events = selectors.EVENT_READ
        return None

    def step(self) -> Result | None:
        """The connection is decided, or something was answered."""
        try:
            if self.events == selectors.EVENT_WRITE:
                return super().step()
            data = self._link.recv(STATUS_LIMIT)
        except OSError as error:
            return False, str(error.strerror or error)
        self._answer += data
        if data and b"\n" not in self._answer and len(self._answer) < STATUS_LIMIT:
            return None
        fields = self._answer.split(b"\n", 1)[0].split()
        if len(fields) < 2 or not fields[0].startswith(b"HTTP/") or not fields[1].isdigit():
            return (
                False,
                "what answers does not speak HTTP"
                if self._answer
                else "the connection was closed without an answer",
            )
        status = int(fields[1])
        return (True, "") if 200 <= status < 400 else (False, f"HTTP status {status}")


class ProcessProbe:
    """A command that ends with 0. What it says first is kept and tells why a check failed, what
    follows is read and dropped, so that it waits for nobody; a check that does not stop talking
    has failed."""

    def __init__(self, place: ExecContext, command: Sequence[str]) -> None:
        self._kept = b""
        self._said = 0
        self._talks = True
        self._output, its_end = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = execute.start(place, command, output=its_end, errors=its_end)
        except BaseException:
            os.close(self._output)
            raise
        finally:
            os.close(its_end)
        os.set_blocking(self._output, False)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._either = select.epoll()
        for one in (self._pidfd, self._output):
            self._either.register(one, select.EPOLLIN)
        self.events = selectors.EVENT_READ

    def fileno(self) -> int:
        """The process, and what it says."""
        return self._either.fileno()

    def step(self) -> Result | None:
        """The process has ended, or says something."""
        status = self._process.poll()
        self._read()
        if status is not None:
            return self.ended(status)
        if self._said > MOST_SAID:
            return False, f"it says more than {MOST_SAID >> 20} MiB: {self._first_words()}"
        return None

    def _read(self) -> None:
        """All that it has said until now, as far as it may say so much."""
        while self._talks and self._said <= MOST_SAID:
            try:
                data = os.read(self._output, SYSTEM_LIMIT)
            except BlockingIOError:
                return
            if not data:  # nobody is left who could say more
                self._either.unregister(self._output)
                self._talks = False
                return
            self._said += len(data)
            self._kept += data[: SYSTEM_LIMIT - len(self._kept)]

    def ended(self, status: int) -> Result:
        """What follows from its exit status and its output."""
        if status == 0:
            return True, ""
        text = self._first_words()
        return False, f"exit status {status}" + (f": {text}" if text else "")

    def _first_words(self) -> str:
        return " ".join(self.output()[:OUTPUT_LIMIT].split())

    def output(self) -> str:
        """The beginning of its output."""
        return self._kept.decode("utf-8", "replace")

    def close(self) -> None:
        """Kills it if it is still there."""
        execute.kill(self._process)
        self._either.close()
        os.close(self._pidfd)
        os.close(self._output)


class SystemProbe(ProcessProbe):
    """What a container's systemd says of itself (systemd.py)."""

    def __init__(self, place: ExecContext, check: Health) -> None:
        super().__init__(place, systemd.COMMAND)
        self._allowed = check.allow_failed

    def ended(self, status: int) -> Result:
        """The answer decides, not the exit status: that is the last command's."""
        return systemd.verdict(self.output(), self._allowed)
