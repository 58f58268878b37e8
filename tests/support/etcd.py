"""Three members of a real etcd on loopback, which a test may stop, suspend and wipe."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from layercake.heads.member import PROGRAM, Member

NAMES = ("one", "two", "three")
READY_S = 60.0


def free_ports(count: int) -> list[int]:
    """TCP ports of loopback that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class EtcdMembers:
    """The members, by number from 0 on."""

    def __init__(self, directory: Path, count: int = 3) -> None:
        ports = free_ports(2 * count)
        self.members = [
            Member(
                name,
                directory / name,
                f"http://127.0.0.1:{ports[2 * i]}",
                f"http://127.0.0.1:{ports[2 * i + 1]}",
            )
            for i, name in enumerate(NAMES[:count])
        ]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._directory = directory
        self.endpoints = [member.client_url for member in self.members]

    def start(self, *numbers: int) -> None:
        """Starts members, all if none is named, each with what it has on its disk."""
        peers = {member.name: member.peer_url for member in self.members}
        for number in numbers or range(len(self.members)):
            member = self.members[number]
            with (self._directory / f"{member.name}.log").open("ab") as output:
                self._processes[number] = subprocess.Popen(
                    member.command(peers, existing=False), stdout=output, stderr=output
                )

    def start_missing(self) -> None:
        """Starts those that were killed, and waits until all answer."""
        if gone := set(range(len(self.members))) - self._processes.keys():
            self.start(*gone)
        self.wait()

    def wait(self, *numbers: int) -> None:
        """Waits until these answer, or all."""
        for number in numbers or range(len(self.members)):
            url = self.members[number].client_url.removeprefix("http://")
            command = ["etcdctl", f"--endpoints={url}", "endpoint", "health"]
            end = time.monotonic() + READY_S
            while (
                done := subprocess.run(
                    command, env={**os.environ, "ETCDCTL_API": "3"}, capture_output=True
                )
            ).returncode:
                assert time.monotonic() < end, done.stderr.decode()

    def kill(self, *numbers: int) -> None:
        """Kills members, all if none is named."""
        for number in numbers or tuple(self._processes):
            process = self._processes.pop(number)
            process.kill()
            process.wait()

    def suspend(self, number: int) -> None:
        """Stops a member where it is (SIGSTOP)."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Lets it go on."""
        self._processes[number].send_signal(signal.SIGCONT)

    def wipe(self) -> None:
        """Kills all, and takes all that they had away."""
        self.kill()
        for member in self.members:
            shutil.rmtree(member.directory, ignore_errors=True)


@contextlib.contextmanager
def etcd_members(directory: Path, count: int = 3) -> Iterator[EtcdMembers]:
    """Members that answer. Skips where there is no etcd: `make test` installs it."""
    if shutil.which(PROGRAM) is None:
        pytest.skip("there is no etcd: install Debian's etcd-server and etcd-client")
    members = EtcdMembers(directory, count)
    try:
        members.start()
        members.wait()
        yield members
    finally:
        members.kill()
