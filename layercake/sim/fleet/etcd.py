"""The members of a real etcd on loopback, for the heads of a simulation and for tests."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from layercake.base.files import write_atomic
from layercake.heads.member import FILE, QUOTA_BYTES, Member, MemberFile
from layercake.kraken.errors import OperationFailed

NAMES = ("one", "two", "three")
READY_S = 60.0


def free_ports(count: int) -> list[int]:
    """TCP ports of loopback that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _answers(url: str) -> bool:
    """Whether a member is well: it knows who leads them."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1.0) as answer:  # noqa: S310 (ours)
            return b'"true"' in answer.read(1000)
    except OSError:  # URLError is one
        return False


def _request_gateway(url: str, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(f"{url}/v3/{path}", json.dumps(body).encode())  # noqa: S310
    with urllib.request.urlopen(request, timeout=READY_S) as answer:  # noqa: S310 (ours)
        return json.load(answer)


def clear(directory: Path) -> None:
    """Takes away what is in a directory, which may be where a disk is mounted."""
    for one in directory.iterdir():
        if one.is_dir():
            shutil.rmtree(one)
        else:
            one.unlink()


class EtcdMembers:
    """The members, by number from 0 on."""

    def __init__(self, directory: Path, count: int = 3, quota_bytes: int = QUOTA_BYTES) -> None:
        ports = free_ports(2 * count)
        self.members = [
            Member(
                name,
                directory / name,
                f"http://127.0.0.1:{ports[2 * i]}",
                f"http://127.0.0.1:{ports[2 * i + 1]}",
                quota_bytes=quota_bytes,
            )
            for i, name in enumerate(NAMES[:count])
        ]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._directory = directory
        self.endpoints = [member.client_url for member in self.members]

    def start(self, *numbers: int, existing: bool = False) -> None:
        """Starts members, all if none is named, each with what it has on its disk; `existing`:
        without anything, as one that was taken in (`replace`)."""
        peers = {member.name: member.peer_url for member in self.members}
        for number in numbers or range(len(self.members)):
            member = self.members[number]
            with (self._directory / f"{member.name}.log").open("ab") as output:
                self._processes[number] = subprocess.Popen(
                    member.command(peers, existing=existing), stdout=output, stderr=output
                )

    def place(self, number: int, data_dir: Path) -> None:
        """Puts into a head's data directory that this member is the one of its machine."""
        member = self.members[number]
        peers = {one.name: one.peer_url for one in self.members}
        found = MemberFile(member.name, member.client_url, member.peer_url, peers, existing=False)
        write_atomic(data_dir / FILE, msgspec.json.encode(found))

    def start_missing(self) -> None:
        """Starts those that were killed, and waits until all answer."""
        if gone := set(range(len(self.members))) - self._processes.keys():
            self.start(*gone)
        self.wait()

    def wait(self, *numbers: int) -> None:
        """Waits until these answer, or all. Raises OperationFailed."""
        end = time.monotonic() + READY_S
        for number in numbers or range(len(self.members)):
            while not _answers(self.members[number].client_url):
                if time.monotonic() > end:
                    raise OperationFailed(f"cannot go on: etcd does not answer: {self._directory}")
                time.sleep(0.05)

    def kill(self, *numbers: int) -> None:
        """Kills members, all if none is named."""
        for number in numbers or tuple(self._processes):
            process = self._processes.pop(number)
            process.kill()
            process.wait()

    def answers(self, number: int) -> bool:
        """Whether a member is well."""
        return _answers(self.members[number].client_url)

    def runs(self, number: int) -> bool:
        """Whether a member that was started has not ended by itself."""
        return self._processes[number].poll() is None

    def replace(self, number: int) -> None:
        """Takes a member out, and another one in its place that has nothing yet. Raises
        OperationFailed."""
        member = self.members[number]
        self.kill(number)
        other = self.members[(number + 1) % len(self.members)].client_url
        for one in _request_gateway(other, "cluster/member/list", {})["members"]:
            if member.peer_url in one["peerURLs"]:
                _request_gateway(other, "cluster/member/remove", {"ID": one["ID"]})
        clear(member.directory)
        end = time.monotonic() + READY_S
        while True:
            try:
                _request_gateway(other, "cluster/member/add", {"peerURLs": [member.peer_url]})
                break
            except OSError as error:  # it has not heard of the others for long enough
                if time.monotonic() > end:
                    raise OperationFailed(f"cannot replace {member.name}: {error}") from None
                time.sleep(0.2)
        self.start(number, existing=True)
        self.wait(number)

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
