"""iSCSI by open-iscsi, where a node has it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from layercake.kraken.errors import OperationFailed

TIMEOUT, WAIT = 60.0, 15.0
"""Seconds: for one call of iscsiadm, and for the device to appear."""


def _iscsiadm(*arguments: str) -> str:
    try:
        done = subprocess.run(["iscsiadm", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=TIMEOUT)
    except FileNotFoundError:
        raise OperationFailed("cannot attach by iSCSI: iscsiadm is not on this node",
                              hint="open-iscsi is not part of minOS; use rbd or nbd, or add it to the node's image") from None
    except subprocess.TimeoutExpired:
        raise OperationFailed(f"cannot attach by iSCSI: iscsiadm did not answer for {TIMEOUT:.0f} s") from None
    text = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode:
        raise OperationFailed(f"cannot attach by iSCSI: {text[-300:] or f'iscsiadm exited with {done.returncode}'}")
    return text


def _device(target: str, lun: int) -> str:
    """The device of a target's unit by sysfs, "" if it is not there."""
    for session in Path("/sys/class/iscsi_session").glob("session*"):
        if (session / "targetname").read_text().strip() == target:
            for block in (session / "device").glob(f"target*/*:{lun}/block/*"):
                return f"/dev/{block.name}"
    return ""


def attach(portal: str, target: str, lun: int) -> str:
    """Logs in to a target by open-iscsi and waits for its device. Raises OperationFailed."""
    if not (found := _device(target, lun)):
        _iscsiadm("-m", "discovery", "-t", "sendtargets", "-p", portal)
        _iscsiadm("-m", "node", "-T", target, "-p", portal, "--login")
    deadline = time.monotonic() + WAIT
    while not (found := found or _device(target, lun)):
        if time.monotonic() > deadline:
            detach(portal, target)
            raise OperationFailed(f"cannot attach {target} lun {lun}: it did not appear in {WAIT:.0f} s")
        time.sleep(0.05)
    return found


def detach(portal: str, target: str) -> None:
    """Logs out, if there is a session. Raises OperationFailed."""
    sessions = Path("/sys/class/iscsi_session").glob("session*/targetname")
    if any(file.read_text().strip() == target for file in sessions):
        _iscsiadm("-m", "node", "-T", target, "-p", portal, "--logout")
