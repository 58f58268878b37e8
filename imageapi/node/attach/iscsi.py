"""Units of iSCSI targets as block devices: logged in to by iscsi_login.py through iscsi_kernel.py,
found again by sysfs.

Sessions are the kernel's and outlive the agent; one serves all units of a target. When its
connection breaks, I/O waits for RECOVERY_S, and `revive` logs in again as soon as the target
answers (iscsi_sessions.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from imageapi.node import child, modules
from imageapi.node.attach import iscsi_kernel as kernel
from imageapi.node.attach.iscsi_kernel import Control
from imageapi.node.attach.iscsi_login import RECEIVE, Account, Login, Session
from imageapi.spec.objects import Spec
from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable

SESSIONS = Path("/sys/class/iscsi_session")
CONNECT_S = 10.0
DEVICE_S = 15.0
SCAN_S = 40.0
END_S = 40.0
"""Seconds: for the portal to answer, for the device to appear, for the target to say what it has,
for a session to end."""

RECOVERY_S = 60
PING_S = 10
"""Seconds: that I/O waits for a target which does not answer, and between looks whether it does,
and for its answer."""

UP = "LOGGED_IN"

Key = Callable[[Spec], bytes]
"""The secret of a description's user, b"" without one; asked for at each login. Raises
LayercakeError."""


@dataclass(frozen=True, slots=True)
class KernelSession:
    """A session of the kernel's."""

    number: int
    target: str
    state: str
    host: int


def initiator() -> str:
    """The node's name for targets, by its host name."""
    return f"iqn.2026-11.local.layercake:{re.sub('[^a-z0-9.-]', '-', os.uname().nodename.lower())}"


def sessions() -> list[KernelSession]:
    """All sessions."""
    sessions = []
    for entry in sorted(SESSIONS.glob("session*")):
        try:
            host = re.search(r"/host(\d+)/", str(entry.resolve()))
            target, state = ((entry / name).read_text().strip() for name in ("targetname", "state"))
        except OSError:
            continue  # it went away meanwhile
        sessions.append(
            KernelSession(int(entry.name[7:]), target, state, int(host[1]) if host else -1)
        )
    return sessions


def of(target: str) -> KernelSession | None:
    """The session with a target."""
    return next((session for session in sessions() if session.target == target), None)


def devices(session: KernelSession, lun: int | None = None) -> list[str]:
    """The block devices of a session, or that of one unit, by their names."""
    top = SESSIONS / f"session{session.number}" / "device"
    return sorted(
        block.name for block in top.glob(f"target*/*:{'*' if lun is None else lun}/block/*")
    )


def attach(spec: Spec, secret: Key) -> str:
    """The device of a target's unit. Raises Unreachable, OperationFailed."""
    modules.need("iscsi", kernel.TRANSPORT)
    session = of(spec["target"])
    if session is None:
        session = _log_in(spec, secret)
    elif session.state != UP:
        revive(spec, secret)
    if not devices(session, spec["lun"]):
        _scan(session, spec["lun"])
    deadline = time.monotonic() + DEVICE_S
    while not (disks := devices(session, spec["lun"])):
        if time.monotonic() > deadline:
            detach(spec)
            raise OperationFailed(
                f"cannot attach {text(spec)}: the target shows this node no such unit",
                hint="see which units it gives to this initiator, and their numbers",
            )
        time.sleep(0.05)
    return f"/dev/{disks[0]}"


def text(spec: Spec) -> str:
    """How people name a unit."""
    return f"iscsi {spec['target']} lun {spec['lun']} at {spec['portal']}"


def _connect(spec: Spec) -> socket.socket:
    host, _, port = spec["portal"].rpartition(":")
    try:
        address = host.strip(
            "[]"
        ).encode()  # as text it would go through a codec that minOS does not have (IDNA)
        link = socket.create_connection((address, int(port)), CONNECT_S)
        link.settimeout(None)
        return link
    except OSError as error:
        raise Unreachable(
            f"cannot attach {text(spec)}: its portal does not answer: {error.strerror or error}",
            hint="is it up, and does it take this port from this node?",
        ) from None


def _log_in(spec: Spec, secret: Key) -> KernelSession:
    """A new session."""
    with _connect(spec) as link, _kernel_errors(spec), Control() as control:
        number, host = control.create()
        try:
            control.bind(number, link)
            control.set(
                number, kernel.TARGET_NAME, spec["target"]
            )  # by this it is found again, whatever comes
            _negotiate(control, number, spec, secret)
        except BaseException:
            child.calls(lambda: _end(number), END_S)
            raise
        return KernelSession(number, spec["target"], UP, host)


@contextlib.contextmanager
def _kernel_errors(spec: Spec) -> Iterator[None]:
    """What the kernel says, as an error for people."""
    try:
        yield
    except TimeoutError:
        raise Unreachable(f"cannot attach {text(spec)}: the target does not answer") from None
    except OSError as error:
        raise OperationFailed(
            f"cannot attach {text(spec)}: the kernel says: {error.strerror or error}"
        ) from None
    except LayercakeError as error:
        raise type(error)(f"cannot attach {text(spec)}: {error.message}", hint=error.hint) from None


def _negotiate(control: Control, number: int, spec: Spec, secret: Key) -> None:
    """The login, over a bound connection, and what was agreed told to the kernel."""
    host, _, port = spec["portal"].rpartition(":")
    account = Account(initiator(), spec["target"], spec.get("user", ""), secret(spec))
    agreed = Login(account, lambda header, data: control.exchange(number, header, data)).run()
    for parameter, value in (
        *parameters(agreed),
        (kernel.PERSISTENT_ADDRESS, host.strip("[]")),
        (kernel.PERSISTENT_PORT, port),
        (kernel.INITIATOR_NAME, initiator()),
    ):
        control.set(number, parameter, value)
    control.start(number)


def parameters(agreed: Session) -> list[tuple[int, str]]:
    """What the kernel has to keep to. (It counts what was agreed on ImmediateData by AND, on
    InitialR2T by OR: RFC 7143, 13.)"""
    values = agreed.values
    return [
        (kernel.MAX_RECV_DLENGTH, str(RECEIVE)),
        (kernel.MAX_XMIT_DLENGTH, values["MaxRecvDataSegmentLength"]),
        (kernel.HDRDGST_EN, "0"),
        (kernel.DATADGST_EN, "0"),
        (kernel.ERL, "0"),
        (kernel.INITIAL_R2T_EN, "1" if values.get("InitialR2T") == "Yes" else "0"),
        (kernel.IMM_DATA_EN, "0" if values.get("ImmediateData") == "No" else "1"),
        (kernel.MAX_R2T, "1"),
        (kernel.FIRST_BURST, values["FirstBurstLength"]),
        (kernel.MAX_BURST, values["MaxBurstLength"]),
        (kernel.PDU_INORDER_EN, "1"),
        (kernel.DATASEQ_INORDER_EN, "1"),
        (kernel.TPGT, values.get("TargetPortalGroupTag", "1")),
        (kernel.EXP_STATSN, str(agreed.status_number)),
        (kernel.FAST_ABORT, "1"),
        (kernel.SESS_RECOVERY_TMO, str(RECOVERY_S)),
        (kernel.PING_TMO, str(PING_S)),
        (kernel.RECV_TMO, str(PING_S)),
    ]


def _scan(session: KernelSession, lun: int) -> None:
    """Has the kernel look for one unit; by a child, as the target has to answer."""
    code = _write(f"/sys/class/scsi_host/host{session.host}/scan", f"- - {lun}".encode())
    if code not in (0, errno.ETIMEDOUT):  # what does not appear is told by who waits for it
        raise OperationFailed(
            f"cannot look for unit {lun} of {session.target}: {os.strerror(code)}"
        )


def _write(file: str, order: bytes) -> int:
    return child.calls(lambda: os.write(os.open(file, os.O_WRONLY | os.O_CLOEXEC), order), SCAN_S)


def revive(spec: Spec, secret: Key) -> None:
    """Logs in again where the connection broke. Raises Unreachable, OperationFailed."""
    session = of(spec["target"])
    if session is None or session.state == UP:
        return
    with _connect(spec) as link, _kernel_errors(spec), Control() as control:
        control.recover(session.number)
        control.bind(session.number, link)
        _negotiate(control, session.number, spec, secret)


def detach(spec: Spec) -> None:
    """Takes a unit away, and logs out after the last of a target; what is not there is fine. Raises
    OperationFailed."""
    session = of(spec["target"])
    if session is None:
        return
    rest = set(devices(session)) - set(devices(session, spec["lun"]))
    if session.state == UP:
        for name in devices(session, spec["lun"]):
            _write(f"/sys/block/{name}/device/delete", b"1")
    if rest:
        return
    if code := child.calls(lambda: _end(session.number), END_S):
        raise OperationFailed(f"cannot log out of {spec['target']}: {os.strerror(code)}")
    if of(spec["target"]) is not None:
        raise OperationFailed(f"cannot log out of {spec['target']}: its session is still there")


def _end(number: int) -> None:
    with Control(END_S) as control:
        control.destroy(number)
