"""The head's orders in a release: all disks are erased at once, on threads, while the agent goes
on; and the TPM is cleared.

An order is carried out once: asked again, it says how far it is. A machine that starts anew begins
anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from layercake.base.text import lines_of_proc
from layercake.kraken.errors import LayercakeError, OperationFailed
from minos.erase.drive import Drive, Erased
from minos.erase.selection import Left, Own
from minos.tpm.commands import Tpm
from minos.tpm.device import DEVICE, Device, Transport

CLEAR = "clear-tpm"
WAITING = "waiting"
RUNNING = "running"
DONE = "done"
FAILED = "failed"
MOST = 256
_MEMORY = ("rootfs", "tmpfs", "ramfs", "overlay")


@dataclass(slots=True)
class Work:
    """A disk that is being erased, or was: `at` of its bytes are done."""

    disk: Own
    began: float
    state: str = RUNNING
    at: int = 0
    seconds: float = 0.0
    done: Erased | None = None
    why: str = ""

    def view(self) -> dict[str, Any]:
        """For the head."""
        return {
            "name": self.disk.name,
            "names": _short(self.disk.names),
            "model": self.disk.model[:80],
            "serial": self.disk.serial[:80],
            "size": self.disk.size,
            "state": self.state,
            "at": self.at,
            "seconds": round(self.seconds, 1),
            "why": self.why[:300],
            "way": self.done.way if self.done is not None else "",
            "verified": self.done is not None and self.done.verified,
        }


@dataclass(slots=True)
class Order:
    """An order to erase: `attempt` counts how often a person had it tried."""

    release: str
    attempt: int
    works: list[Work] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    @property
    def state(self) -> str:
        """Of all disks together."""
        if any(work.state == RUNNING for work in self.works):
            return RUNNING
        return (
            FAILED
            if any(work.state == FAILED for work in self.works)
            or any(one.wrong for one in self.left)
            else DONE
        )

    def gives_way(self, release: str, attempt: int) -> bool:
        """Whether another order is begun in its place: that of another release once this one has
        ended, or of a later attempt once this one has failed."""
        another = self.release != release and self.state != RUNNING
        return another or (self.state == FAILED and attempt > self.attempt)

    def view(self) -> dict[str, Any]:
        """How far it is, for the head."""
        return {
            "state": self.state,
            "disks": [work.view() for work in self.works[:MOST]],
            "left": [
                {"name": one.name, "names": _short(one.names), "why": one.why, "wrong": one.wrong}
                for one in self.left[:MOST]
            ],
        }


class Orders:
    """Carries them out. `find` gives the disks (found.look)."""

    def __init__(
        self,
        *,
        find: Callable[[], tuple[list[Own], list[Left]]],
        drive: Callable[[Own, Callable[[int], None]], Drive] = Drive,
        mounts: Path = Path("/proc/mounts"),
        tpm: Callable[[], Transport] = Device,
        has_tpm: Callable[[], bool] = DEVICE.exists,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._drive = drive
        self._mounts = mounts
        self._tpm = tpm
        self._has_tpm = has_tpm
        self._clock = clock
        self._order: Order | None = None
        self._alone = threading.Lock()
        self._controllers: dict[str, threading.Lock] = {}

    def carry_out(self, settled: Callable[[], bool], request: Mapping[str, Any]) -> dict[str, Any]:
        """Begins an order, or says how far it is. `settled` says whether the machine's drivers are
        all there: without one, a disk would be passed over. Raises LayercakeError for one that
        cannot be begun."""
        self._refuse_elsewhere()
        if request.get("kind") == CLEAR:
            return {"cleared": self._clear()}
        release = request.get("release")
        attempt = request.get("attempt")
        if not isinstance(release, str) or not release or type(attempt) is not int:
            raise OperationFailed("cannot erase: the head's order is not as agreed")
        with self._alone:
            order = self._order
            if order is None or order.gives_way(release, attempt):
                if not settled():
                    return {"state": WAITING, "disks": [], "left": []}
                order = self._order = self._begin(release, attempt)
            if order.release != release:
                raise OperationFailed("cannot erase: another order is being carried out")
        return order.view()

    def _begin(self, release: str, attempt: int) -> Order:
        try:
            own, left = self._find()
        except OSError as error:
            raise OperationFailed(f"cannot look for disks: {error}") from None
        order = Order(release, attempt, [Work(disk, self._clock()) for disk in own], left)
        for work in order.works:
            turn = self._controllers.setdefault(_controller(work.disk.name), threading.Lock())
            threading.Thread(
                target=self._erase, args=(work, turn), name=f"erase {work.disk.name}", daemon=True
            ).start()
        return order

    def _refuse_elsewhere(self) -> None:
        """A system that runs from a disk is not minOS: nothing is erased under it, whoever says
        so."""
        for line in lines_of_proc(self._mounts):
            fields = line.split()
            if fields[1:2] == ["/"] and fields[2] not in _MEMORY:
                raise OperationFailed(
                    f"cannot erase: this system does not run from memory, but from {fields[0]}"
                )

    def _erase(self, work: Work, turn: threading.Lock) -> None:
        def set_progress(done: int) -> None:
            work.at = done

        try:
            with turn:
                work.done = erase_by_all_paths(
                    work.disk, lambda disk: self._drive(disk, set_progress)
                )
            work.at = work.disk.size
            state = DONE
        except (LayercakeError, OSError) as error:
            work.why = str(error)
            state = FAILED
        work.seconds = self._clock() - work.began
        work.state = state

    def _clear(self) -> bool:
        """Clears the TPM; whether there is one."""
        if not self._has_tpm():
            return False
        opened = self._tpm()
        try:
            Tpm(opened).clear()
        finally:
            opened.close()
        return True


def erase_by_all_paths(disk: Own, open_drive: Callable[[Own], Drive]) -> Erased:
    """Erases a disk once, by the first path to it. What has its serial number and turns out to be
    another disk is erased too. Raises OperationFailed, OSError."""
    drive = open_drive(disk)
    try:
        impostors = _other_disks(drive, disk, open_drive)
        done = drive.erase()
    finally:
        drive.close()
    for other in impostors:
        drive = open_drive(other)
        try:
            done = drive.erase()
        finally:
            drive.close()
    return done


def _other_disks(drive: Drive, disk: Own, open_drive: Callable[[Own], Drive]) -> list[Own]:
    """Of the other paths those that lead to another disk: it does not show what is written to this
    one. Raises OperationFailed, OSError."""
    if not disk.others:
        return []
    mark = drive.write_mark()
    others = []
    for name in disk.others:
        path = replace(disk, name=name, others=())
        by_path = open_drive(path)
        try:
            if not by_path.has_mark(mark):
                others.append(path)
        finally:
            by_path.close()
    return others


def _short(names: Sequence[str]) -> list[str]:
    return [name[:300] for name in names[:16]]


def _controller(name: str) -> str:
    """What disks have in common that are not formatted at once: the namespaces of an NVMe
    controller."""
    return name[: name.index("n", 4)] if name.startswith("nvme") and "n" in name[4:] else name
