"""Which container a connection of this machine is from: the kernel says which socket is at its
other end, and of which processes it is (proc_net_tcp, proc_pid_fd(5)).

Containers share the node's network, so an address tells none of them apart. What can be faked is
not looked at: a process of a container is in the container's cgroup, whatever it calls itself.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

MOST_DESCRIPTORS = 50_000
"""Descriptors of one container that are looked at: one that opens more is not known by them."""
MOST_GROUPS = 2_000
"""Cgroups that a container has made below its own which are looked at."""
_MAPPED = "0000000000000000FFFF0000"
"""How an IPv4 address begins as one of IPv6, in /proc/net/tcp6."""


def container_of(client: socket.socket, groups: Path, proc: Path = Path("/proc")) -> str:
    """The name of the group below `groups`, the cgroup of all containers, whose process has the
    other end of an accepted connection over IPv4; "" if none has. Raises OSError."""
    inode = _inode_of(client.getpeername(), client.getsockname(), proc)
    if not inode:
        return ""
    for group in sorted(groups.iterdir()):
        if group.is_dir() and _holds_socket(group, f"socket:[{inode}]", proc):
            return group.name
    return ""


def _inode_of(theirs: tuple[str, int], ours: tuple[str, int], proc: Path) -> int:
    """The inode of the socket that is connected from `theirs` to `ours`, 0 if there is none."""
    pair = [_hex(*theirs), _hex(*ours)]
    for name, prefix in (("tcp", ""), ("tcp6", _MAPPED)):
        try:
            lines = (proc / "net" / name).read_text().splitlines()
        except FileNotFoundError:
            continue  # a kernel without IPv6
        wanted = [prefix + one for one in pair]
        for fields in map(str.split, lines):
            if fields[1:3] == wanted:
                return int(fields[9])
    return 0


def _hex(address: str, port: int) -> str:
    """As the kernel writes it."""
    return f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}:{port:04X}"


def _holds_socket(group: Path, mark: str, proc: Path) -> bool:
    """Whether a process in a cgroup or below it has a socket."""
    left = MOST_DESCRIPTORS
    for pid in _processes(group):
        place = proc / pid / "fd"
        try:
            names = os.listdir(place)  # noqa: PTH208 (names)
        except OSError:
            continue  # it has ended
        for name in names[:left]:
            try:
                if os.readlink(place / name) == mark:  # noqa: PTH115 (not a path)
                    return True
            except OSError:
                continue  # it was closed
        left -= 1 + len(names)
        if left <= 0:
            return False
    return False


def _processes(group: Path) -> Iterator[str]:
    for directory, _, _ in islice(os.walk(group), MOST_GROUPS):
        try:
            yield from (Path(directory) / "cgroup.procs").read_text().split()
        except OSError:
            continue  # it has gone, or holds threads
