"""Network block devices: the handshake of the NBD protocol, then the kernel is given the socket by
generic netlink.

Netlink rather than the old ioctls: those keep a thread inside the kernel for as long as the device
is there, and the device would die with the agent.

Protocol: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md, fixed newstyle.
Netlink: <linux/nbd-netlink.h>.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from imageapi.node import modules
from layercake.base.packets.netlink import NLMSG_ERROR, attribute, attributes, messages
from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable

INIT = b"NBDMAGIC"
OPTION = b"IHAVEOPT"
REPLY = 0x3E889045565A9
FIXED_NEWSTYLE = 1
NO_ZEROES = 2
OPT_GO = 7
REP_ACK = 1
REP_INFO = 3
REP_ERROR = 1 << 31
FLAG_READ_ONLY = 2
TIMEOUT = 10.0
REPLY_LIMIT = 4096
GENL_CTRL = 0x10
CTRL_GETFAMILY = 3
ATTR_FAMILY_ID = 1
ATTR_FAMILY_NAME = 2
CMD_CONNECT = 1
CMD_DISCONNECT = 2
ATTR_INDEX = 1
ATTR_SIZE = 2
ATTR_BLOCK_SIZE = 3
ATTR_TIMEOUT = 4
ATTR_SERVER_FLAGS = 5
ATTR_SOCKETS = 7
ATTR_BACKEND = 10
NLM_REQUEST = 1
NLM_ACK = 4
IO_TIMEOUT = 30
"""Seconds until the kernel gives an unanswered request up."""


@dataclass(frozen=True, slots=True)
class Export:
    """What a server says of an export: its bytes and transmission flags."""

    size: int
    flags: int


def _exactly(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = link.recv(count - len(data))
        if not part:
            raise Unreachable("the server closed the connection")
        data += part
    return data


def handshake(link: socket.socket, export: str) -> Export:
    """Asks for an export by NBD_OPT_GO; the socket is in transmission mode then. Raises
    OperationFailed or Unreachable."""
    magic, option, flags = struct.unpack(">8s8sH", _exactly(link, 18))
    if magic != INIT or option != OPTION or not flags & FIXED_NEWSTYLE:
        raise OperationFailed("it does not speak the fixed newstyle NBD protocol")
    name = export.encode()
    data = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
    link.sendall(
        struct.pack(">I", FIXED_NEWSTYLE | flags & NO_ZEROES)
        + OPTION
        + struct.pack(">II", OPT_GO, len(data))
        + data
    )
    exported: Export | None = None
    while True:
        kind, body = _read_reply(link, export)
        if kind == REP_INFO and len(body) >= 12 and body[:2] == b"\0\0":
            exported = Export(*struct.unpack_from(">QH", body, 2))
        if kind == REP_ACK:
            if exported is None:
                raise OperationFailed("it did not say how large the export is")
            return exported


def _read_reply(link: socket.socket, export: str) -> tuple[int, bytes]:
    """(type, data) of a reply to NBD_OPT_GO. Raises OperationFailed for a refusal."""
    magic, option, kind, length = struct.unpack(">QIII", _exactly(link, 20))
    if magic != REPLY or option != OPT_GO or length > REPLY_LIMIT:
        raise OperationFailed("its answer is not NBD")
    body = _exactly(link, length)
    if kind & REP_ERROR:
        raise OperationFailed(
            body.decode("utf-8", "replace")[:200]
            or f"it refuses export {export!r} (error {kind & 0xFFFF})"
        )
    return kind, body


# ---- generic netlink
# -----


class Netlink:
    """A generic netlink socket; a context manager."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 16)
        self._socket.bind((0, 0))
        self._socket.settimeout(TIMEOUT)

    def __enter__(self) -> Netlink:
        return self

    def __exit__(self, *rest: object) -> None:
        self._socket.close()

    def request(self, family: int, command: int, data: bytes) -> dict[int, bytes]:
        """Sends a request; the attributes of its answer, {} if it was only acknowledged. Raises
        OSError."""
        body = struct.pack("=BBH", command, 1, 0) + data
        self._socket.send(
            struct.pack("=IHHII", 16 + len(body), family, NLM_REQUEST | NLM_ACK, 1, 0) + body
        )
        answer: dict[int, bytes] = {}
        while True:
            for kind, _, payload in messages(self._socket.recv(65536)):
                if kind == NLMSG_ERROR:
                    (number,) = struct.unpack_from("=i", payload)
                    if number:
                        raise OSError(-number, os.strerror(-number))
                    return answer
                answer = attributes(payload[4:])

    def family(self, name: str) -> int:
        """The number of a family. Raises OSError."""
        reply = self.request(
            GENL_CTRL, CTRL_GETFAMILY, attribute(ATTR_FAMILY_NAME, name.encode() + b"\0")
        )
        return int(struct.unpack_from("=H", reply[ATTR_FAMILY_ID])[0])


def connect_request(handle: int, export: Export, name: str, readonly: bool) -> bytes:
    """The attributes of NBD_CMD_CONNECT for one socket. Without an index the kernel takes a free
    device, or makes one."""
    sockets = attribute(1 | 0x8000, attribute(1, struct.pack("=I", handle)))
    flags = export.flags | (FLAG_READ_ONLY if readonly else 0)
    return b"".join(
        (
            attribute(ATTR_SIZE, struct.pack("=Q", export.size)),
            attribute(ATTR_BLOCK_SIZE, struct.pack("=Q", 512 if export.size % 4096 else 4096)),
            attribute(ATTR_TIMEOUT, struct.pack("=Q", IO_TIMEOUT)),
            attribute(ATTR_SERVER_FLAGS, struct.pack("=Q", flags)),
            attribute(ATTR_BACKEND, name.encode() + b"\0"),
            attribute(ATTR_SOCKETS | 0x8000, sockets),
        )
    )


def attach(host: str, port: int, export: str, *, name: str, readonly: bool = False) -> str:
    """Connects an export and returns its device. `name` marks the device (sysfs `backend`).

    Raises OperationFailed or Unreachable."""
    where = f"nbd://{host}:{port}/{export}"
    modules.need("nbd", Path("/sys/module/nbd"))
    host = host.strip("[]")
    link = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        link.settimeout(TIMEOUT)
        link.connect((host, port))
    except OSError as error:
        link.close()
        raise Unreachable(f"cannot attach {where}: {error.strerror or error}") from None
    with link, Netlink() as netlink:
        try:
            exported = handshake(link, export)
            link.settimeout(None)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answer = netlink.request(
                netlink.family("nbd"),
                CMD_CONNECT,
                connect_request(link.fileno(), exported, name, readonly),
            )
        except (OSError, LayercakeError) as error:
            raise OperationFailed(
                f"cannot attach {where}: {getattr(error, 'message', '') or error}"
            ) from None
    return _node(struct.unpack_from("=I", answer[ATTR_INDEX])[0], where)


def _node(index: int, where: str) -> str:
    """The device's path once the kernel knows its size; its node is made if nobody else does."""
    entry = Path(f"/sys/block/nbd{index}")
    path = Path(f"/dev/nbd{index}")
    deadline = time.monotonic() + TIMEOUT
    while not ((entry / "size").exists() and int((entry / "size").read_text())):
        if time.monotonic() > deadline:
            raise OperationFailed(
                f"cannot attach {where}: {path} has no size after {TIMEOUT:.0f} s"
            )
        time.sleep(0.005)
    if not path.exists():
        major, minor = (entry / "dev").read_text().split(":")
        os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(int(major), int(minor)))
    return str(path)


def find(name: str) -> list[int]:
    """The numbers of the devices that carry a name."""
    devices = []
    for file in Path("/sys/block").glob("nbd*/backend"):
        try:
            if file.read_text().strip() == name:
                devices.append(int(file.parent.name[3:]))
        except OSError:
            continue  # it went away meanwhile
    return devices


def detach(name: str, device: str = "") -> None:
    """Disconnects the devices that carry a name; none is fine. Raises OperationFailed."""
    for index in find(name):
        try:
            with Netlink() as netlink:
                netlink.request(
                    netlink.family("nbd"),
                    CMD_DISCONNECT,
                    attribute(ATTR_INDEX, struct.pack("=I", index)),
                )
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL):
                raise OperationFailed(
                    f"cannot detach {device or f'/dev/nbd{index}'}: {error.strerror}"
                ) from None
