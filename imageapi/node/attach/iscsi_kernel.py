"""The kernel's iSCSI initiator, by netlink: sessions and connections are made and ended so, and
logins go through it.

Source: Linux' include/scsi/iscsi_if.h (struct iscsi_uevent: 56 bytes, then what belongs to it),
scsi_transport_iscsi.c. The kernel needs nobody once a session is there, but to log in again after
its connection broke: it stops I/O then, and after SESS_RECOVERY_TMO seconds gives an error.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from pathlib import Path

from layercake.kraken.errors import OperationFailed

TRANSPORT = Path("/sys/class/iscsi_transport/tcp")
NETLINK_ISCSI = 8
GROUP_EVENTS = 1
(
    CREATE_SESSION,
    DESTROY_SESSION,
    CREATE_CONN,
    DESTROY_CONN,
    BIND_CONN,
    SET_PARAM,
    START_CONN,
    STOP_CONN,
    SEND_PDU,
) = range(11, 20)
RECV_PDU = 101
CONN_ERROR = 102
IF_ERROR = 103
STOP_TERM = 1
STOP_RECOVER = 3
(
    MAX_RECV_DLENGTH,
    MAX_XMIT_DLENGTH,
    HDRDGST_EN,
    DATADGST_EN,
    INITIAL_R2T_EN,
    MAX_R2T,
    IMM_DATA_EN,
    FIRST_BURST,
    MAX_BURST,
    PDU_INORDER_EN,
    DATASEQ_INORDER_EN,
    ERL,
) = range(12)
EXP_STATSN = 14
TARGET_NAME = 15
TPGT = 16
PERSISTENT_ADDRESS = 17
PERSISTENT_PORT = 18
SESS_RECOVERY_TMO = 19
FAST_ABORT = 26
PING_TMO = 30
RECV_TMO = 31
INITIATOR_NAME = 34
COMMANDS = 128
QUEUE = 32
"""Commands of a session, and of a unit, at once."""

_EVENT = struct.Struct("=IIQ24s16s")
_HEADER = struct.Struct("=IHHII")
CONNECTION = 0
"""Each session has one."""


class Control:
    """A netlink socket to the initiator; a context manager. `limit`: seconds to wait for anything.
    Its methods raise OSError."""

    def __init__(self, limit: float = 15.0) -> None:
        self._limit = limit
        self._handle = int((TRANSPORT / "handle").read_text())
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_ISCSI
        )
        self._socket.bind((0, GROUP_EVENTS))

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *rest: object) -> None:
        self._socket.close()

    def _receive(self, deadline: float) -> tuple[int, int, bytes, bytes]:
        """The next event: (type, the kernel's error, its fixed part of 16 bytes, what follows)."""
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        data = self._socket.recv(131072)
        kind, error, _, _, answer = _EVENT.unpack_from(data, _HEADER.size)
        return kind, error, answer, data[_HEADER.size + _EVENT.size :]

    def request(self, kind: int, fixed: bytes, data: bytes = b"") -> bytes:
        """An order with its answer's 16 bytes, of which the first number is 0, or an error, where
        it makes nothing new."""
        body = _EVENT.pack(kind, 0, self._handle, fixed, b"") + data
        body += bytes(-len(body) % 4)
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, 0, 0, 0) + body)
        deadline = time.monotonic() + self._limit
        while True:
            event, error, answer, _ = self._receive(deadline)
            if event == IF_ERROR:
                number = struct.unpack("=i", struct.pack("=I", error))[0]
                raise OSError(abs(number), os.strerror(abs(number)))
            if event == kind:
                return answer

    def order(self, kind: int, fixed: bytes, data: bytes = b"") -> None:
        """An order that makes nothing new."""
        (number,) = struct.unpack_from("=i", self.request(kind, fixed, data))
        if number:
            raise OSError(abs(number), os.strerror(abs(number)))

    def create(self) -> tuple[int, int]:
        """A session and its connection: (the session's number, that of its SCSI host)."""
        session, host = struct.unpack_from(
            "=II", self.request(CREATE_SESSION, struct.pack("=IHH", 1, COMMANDS, QUEUE))
        )
        self.request(CREATE_CONN, struct.pack("=II", session, CONNECTION))
        return session, host

    def bind(self, session: int, link: socket.socket) -> None:
        """Gives the kernel a connected TCP socket."""
        self.order(BIND_CONN, struct.pack("=IIQI", session, CONNECTION, link.fileno(), 1))

    def set(self, session: int, parameter: int, value: str) -> None:
        """Sets one parameter of a session."""
        data = value.encode() + b"\0"
        self.order(SET_PARAM, struct.pack("=IIII", session, CONNECTION, parameter, len(data)), data)

    def start(self, session: int) -> None:
        """Commands go over the connection from now on."""
        self.order(START_CONN, struct.pack("=II", session, CONNECTION))

    def exchange(self, session: int, header: bytes, data: bytes) -> tuple[bytes, bytes]:
        """Sends a login PDU; (header, data) of the answer. Raises OperationFailed if the connection
        breaks meanwhile."""
        self.order(
            SEND_PDU,
            struct.pack("=IIII", session, CONNECTION, len(header), len(data)),
            header + data,
        )
        deadline = time.monotonic() + self._limit
        while True:
            kind, _, answer, rest = self._receive(deadline)
            if struct.unpack_from("=I", answer)[0] != session:
                continue
            if kind == CONN_ERROR:
                raise OperationFailed("the target closed the connection")
            if kind == RECV_PDU:
                length = int.from_bytes(rest[5:8], "big")
                return rest[:48], rest[48 : 48 + length]

    def recover(self, session: int) -> None:
        """Lets go of a connection that broke, so that another can be bound; the kernel takes none
        before it is told so."""
        self.request(STOP_CONN, struct.pack("=IIQI", session, CONNECTION, 0, STOP_RECOVER))

    def destroy(self, session: int) -> None:
        """Ends connection and session; what is still asked for gets an error. A session that was
        only begun has no connection."""
        with contextlib.suppress(OSError):  # what stays of the connection, the session's end tells
            self.request(STOP_CONN, struct.pack("=IIQI", session, CONNECTION, 0, STOP_TERM))
            self.request(DESTROY_CONN, struct.pack("=II", session, CONNECTION))
        self.request(DESTROY_SESSION, struct.pack("=I", session))
