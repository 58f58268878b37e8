"""Containers share the node's address, and do not reach the head's ports that are its agent's."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from smallimages import build_plain_image

from imageapi.node.container import egress
from imageapi.node.container.cgroup import ROOT, clear
from imageapi.node.container.egress import HeadPorts, parse_head_ports
from layercake.kraken.errors import OperationFailed
from tests.support.images import Node, eventually, spec_of
from tests.support.namespace import run_as_agent

CLONE_NEWNET = 0x40000000
V4 = "127.0.0.1"
V6 = "::1"


def alone_on_the_network() -> None:
    """This process has a network of its own: what others say on the loopback would fill a socket
    that sees all of it."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


@contextlib.contextmanager
def listening(family: int, address: str, port: int = 0) -> Iterator[int]:
    """Takes connections and ends them."""
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind((address, port))
        listener.listen()

        def end() -> None:
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()

        threading.Thread(target=end, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def reaches(family: int, kind: int, address: str, port: int, options: bytes = b"") -> bool:
    """`options` go into the header of IPv4."""
    with socket.socket(family, kind) as sock:
        if options:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, options)
        sock.settimeout(1.0)
        try:
            sock.connect((address, port))
            if kind == socket.SOCK_DGRAM:
                sock.send(b"x")
        except OSError:
            return False
    return True


def inside(group: Path, *what: tuple[Any, ...]) -> list[bool]:
    """What a process in a cgroup reaches."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        (group / "cgroup.procs").write_text("0")
        os.write(writer, bytes(reaches(*one) for one in what))
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as answer:
        return list(map(bool, answer.read()))


@pytest.mark.root
def test_a_cgroup_reaches_all_but_the_heads_ports(tmp_path: Path) -> None:
    stream = socket.SOCK_STREAM
    packets = socket.SOCK_DGRAM

    def body(run: Path) -> None:
        group = ROOT / f"test-{os.getpid()}"
        (group / "below").mkdir(parents=True)
        four = socket.AF_INET
        six = socket.AF_INET6
        with (
            listening(four, "0.0.0.0") as closed,
            listening(six, V6) as of_six,
            listening(four, V4) as other,
        ):
            asked = (
                (four, stream, V4, closed),
                (six, stream, V6, of_six),
                (six, stream, f"::ffff:{V4}", closed),
                (four, packets, V4, closed),
                (six, packets, V6, closed),
                (four, packets, "127.0.0.2", closed, b"\x01\x01\x01\x01"),
                (four, stream, V4, other),
                (four, stream, "127.0.0.2", closed),
                (four, packets, V4, 53),
            )
            assert inside(group / "below", *asked) == [True] * 9
            egress.close_head_ports(group, HeadPorts((V4, V6), (closed, of_six)))
            assert inside(group / "below", *asked) == [False] * 6 + [True] * 3
            assert reaches(four, stream, V4, closed), "the agent is outside"
        clear(group)

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_raw_frames_pass_the_closed_ports(tmp_path: Path) -> None:
    """What the page on security says of NET_RAW, a privilege."""
    mark = os.urandom(16)

    def body(run: Path) -> None:
        alone_on_the_network()
        group = ROOT / f"test-{os.getpid()}"
        group.mkdir(parents=True)
        egress.close_head_ports(group, HeadPorts((V4,), (53,)))
        everything = socket.ntohs(0x0003)  # ETH_P_ALL
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, everything) as seen:
            seen.bind(("lo", 0))
            seen.settimeout(20.0)
            child = os.fork()
            if child == 0:
                (group / "cgroup.procs").write_text("0")
                plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                with plain, contextlib.suppress(PermissionError):
                    plain.sendto(b"plain" + mark, (V4, 53))
                with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
                    raw.bind(("lo", 0))
                    raw.send(bytes(12) + b"\x08\0" + b"raw" + mark)
                os._exit(0)
            os.waitpid(child, 0)
            while mark not in (frame := seen.recv(2048)):
                pass
            assert b"raw" + mark in frame, "the other one was dropped"
        clear(group)

    run_as_agent(tmp_path / "run", body)


LOOK = """#!/bin/sh
for port in PORTS; do
  if busybox timeout 5 busybox nc 127.0.0.1 $port < /dev/null; then echo $port open; else echo $port closed; fi
done
echo looked
trap 'exit 0' TERM
while :; do sleep 1 & wait $!; done
"""


@pytest.mark.root
@pytest.mark.parametrize(("asked", "state"), [({}, "closed"), ({"head_api": True}, "open")])
def test_a_container_does_not_reach_them_unless_it_may(
    tmp_path: Path, asked: dict[str, Any], state: str
) -> None:
    with listening(socket.AF_INET, V4) as api, listening(socket.AF_INET, V4) as other:
        script = LOOK.replace("PORTS", f"{api} {other}")
        image = build_plain_image(tmp_path / "look.squashfs", "look", script=script)

        def body(run: Path) -> None:
            node = Node(run)
            node.images.runtime.head_ports = lambda: HeadPorts((V4,), (api,))
            assert node.run(spec_of(image, "app", **asked)) == "ACTIVE", repr(node.events)
            eventually(lambda: "looked" in node.images.logs("app", 50))
            text = node.images.logs("app", 50)
            assert f"{api} {state}" in text and f"{other} open" in text
            assert node.stop() == "IDLE"

        run_as_agent(tmp_path / "run", body)


@pytest.mark.parametrize(
    "data", [{"ports": ["x"]}, {"addresses": ["head"], "ports": [1]}, {"ports": [1 << 16]}]
)
def test_what_is_no_port_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(OperationFailed, match="cannot use the head's ports"):
        parse_head_ports(data)
