"""How long a boot may take: what the inventory or a setting allows, and less of a node whose usual
time is known.

Some machines take ten minutes for what others do in one, so how long a boot took is kept for each
node, with how much of it went by before its firmware was first seen. From then on a dead node is
found out in some times its usual time. An attempt that follows one that failed is given twice as
long: a machine that got more memory tests that too.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from layercake.base.clock import Clock
from layercake.fleet import events
from layercake.fleet.store import BootTimes, Record, Store
from layercake.kraken.converge import EXTENSION, Event, Progress
from layercake.kraken.mutation import Mutation

KEPT = 8
"""How many of a node's boots are remembered."""
TIMES = 4.0
"""A boot may take so many times as long as the longest that is remembered."""
LEAST_FIRMWARE_S = 120.0
LEAST_REST_S = 60.0
SLOW = 2.0
"""So many times the usual time are worth a warning."""
STEP_EXTENDS_S = 60.0
"""Where nothing else is said, a boot that gets on is given so long from its last step."""
AROUND_S = 120.0
"""What a start has beside the boot itself: images that stop, and power that goes off and on."""


@functools.lru_cache(maxsize=16_384)
def usual(times: BootTimes) -> float | None:
    """Seconds that a boot of the node usually takes, from power-on to the join; None if that is not
    known."""
    return round(statistics.median(times.whole), 1) if times.whole else None


def firmware_s(times: BootTimes, limit: float, attempt: int = 1) -> float:
    """How long the firmware is waited for, in an attempt at a boot that may take `limit`
    seconds."""
    if not times.firmware:
        return limit
    return min(limit, max(LEAST_FIRMWARE_S, TIMES * max(times.firmware)) * 2.0 ** (attempt - 1))


def rest_s(times: BootTimes, stall: float, attempt: int = 1) -> float:
    """How long each further step is waited for, once the firmware was seen; `stall` is how long
    where nothing is known."""
    rest = [whole - firmware for whole, firmware in zip(times.whole, times.firmware, strict=True)]
    if not rest:
        return stall
    return min(stall, max(LEAST_REST_S, TIMES * max(rest)) * 2.0 ** (attempt - 1))


@dataclass(slots=True)
class Boot:
    """A boot that goes on since the power came on, None where nobody saw that: when its firmware
    was first seen, whether it was told that it takes long, until when its firmware is waited for,
    and whether that was prolonged."""

    since: float | None
    firmware: float | None = None
    told: bool = False
    until: float = 0.0
    prolonged: bool = False


class BootTimeouts:
    """The boots that go on, and how long each is waited for. Runs on the event loop."""

    def __init__(self, store: Store, post: Callable[[Record, Event], None], clock: Clock) -> None:
        self._store = store
        self._post = post
        self._clock = clock
        self.boots: dict[str, Boot] = {}
        self._seen: dict[str, str] = {}

    # -- what happens

    def noted(self, record: Record, meaning: str) -> None:
        """Something was seen of a node's boot: an event of a kind that means this."""
        self._seen[record.node.id] = meaning

    def last_step(self, record: Record) -> str:
        """What was seen last of a node's boot since it was switched on, in words, "" for
        nothing."""
        return self._seen.get(record.node.id, "")

    def changed(self, record: Record, before: int) -> None:
        """The discovered state of a node has changed."""
        layout = record.planner.layout
        key = record.node.id
        power = record.value("power")
        was = layout.get(before, "power")
        if power != "ON":
            self.boots.pop(key, None)
            self._seen.pop(key, None)
        elif was in ("OFF", "HANG"):
            self.boots[key] = Boot(self._clock())
        if (
            record.value("boot") == "INIT"
            and layout.get(before, "boot") == "WAIT"
            and power == "ON"
        ):
            self._learn(record, self.boots.pop(key, None))

    def _learn(self, record: Record, boot: Boot | None) -> None:
        if boot is None or boot.since is None or boot.firmware is None:
            return
        whole = self._clock() - boot.since
        firmware = boot.firmware - boot.since
        times = record.boot_times
        record.boot_times = BootTimes(
            (*times.whole, round(whole, 1))[-KEPT:], (*times.firmware, round(firmware, 1))[-KEPT:]
        )
        self._store.mark(record)

    def begins(self, record: Record, mutation: str, attempt: int, timeout: float) -> float:
        """An attempt begins: how long it may take. The engine is told if that is less than it knows
        of."""
        step = record.planner.mutation(mutation)
        if not step.stall:
            return timeout
        now = self._clock()
        boot = self.boots.setdefault(record.node.id, Boot(None))
        first = firmware_s(record.boot_times, timeout, attempt)
        boot.until = now + first
        if first < timeout:
            self._post(record, Progress(mutation, boot.until, sooner=True))
        return first

    def params(self, record: Record, mutation: str, attempt: int) -> Mapping[str, Any]:
        """What the module that waits for the node has to know besides."""
        step = record.planner.mutation(mutation)
        if not step.stall:
            return {}
        return {
            "step_s": rest_s(record.boot_times, step.stall, attempt),
            "most_s": EXTENSION * step.timeout,
        }

    def stepped(self, record: Record) -> None:
        """A step of a boot was seen, by what its firmware or what came after it asked for."""
        found = _waited(record)
        if found is None:
            return
        step, attempt = found
        now = self._clock()
        boot = self.boots.get(record.node.id)
        if boot is not None and boot.firmware is None:
            boot.firmware = now
        extend = rest_s(record.boot_times, step.stall, attempt) if step.stall else STEP_EXTENDS_S
        self._post(record, Progress(step.name, now + extend, sooner=bool(step.stall)))

    def firmware_works(self, record: Record) -> None:
        """The firmware gets on, as its BMC says, before it has asked for anything: it is waited for
        as long again."""
        found = _waited(record)
        boot = self.boots.get(record.node.id)
        if found is None or boot is None or boot.firmware is not None or not found[0].stall:
            return
        step, attempt = found
        until = self._clock() + firmware_s(record.boot_times, step.timeout, attempt)
        if until > boot.until:
            boot.until = until
            boot.prolonged = True
            self._post(record, Progress(step.name, until))

    def left(self, record: Record) -> float:
        """Seconds that are left to a boot which its module has given up on because it did not know
        that the firmware gets on. 0.0 from then on, until the firmware gets on again: a module that
        cannot wait at all is not asked for ever."""
        boot = self.boots.get(record.node.id)
        active = record.machine.active
        if boot is None or active is None or not boot.prolonged or boot.firmware is not None:
            return 0.0
        boot.prolonged = False
        return max(0.0, active.deadline - self._clock())

    def forget(self, record: Record) -> None:
        """A node is gone."""
        self.boots.pop(record.node.id, None)
        self._seen.pop(record.node.id, None)

    def tick(self) -> None:
        """Tells of boots that take long; called once a second."""
        now = self._clock()
        for key, boot in list(self.boots.items()):
            record = self._store.find(key)
            if record is None or boot.since is None or boot.told:
                continue
            often = usual(record.boot_times)
            if (
                often is not None
                and now - boot.since > SLOW * often
                and _waited(record) is not None
            ):
                boot.told = True
                seconds = now - boot.since
                self._store.event(
                    record,
                    events.BOOT_SLOW,
                    f"it boots for {seconds:.0f} s by now, and usually takes {often:.0f} s",
                    data={"seconds": round(seconds, 1), "usual_s": often},
                )

    # -- what is told

    def takes_s(self, record: Record) -> float:
        """How long a start of the node may take, from the order until it is there or was given up
        once."""
        step = record.planner.waits
        if step is None:
            return 0.0
        return (
            AROUND_S
            + firmware_s(record.boot_times, step.timeout)
            + rest_s(record.boot_times, step.stall)
        )

    def since(self, record: Record) -> float | None:
        """When the boot that goes on began; None if none does, or nobody saw it begin. It is
        another only with another state."""
        boot = self.boots.get(record.node.id)
        return boot.since if boot is not None else None

    def view(self, record: Record) -> dict[str, Any]:
        """What people are shown: the usual time, the longest, of how many boots, and how long this
        one has taken by now."""
        times = record.boot_times
        since = self.since(record)
        now_s = None if since is None else round(self._clock() - since, 1)
        step = record.planner.waits
        return {
            "usual_s": usual(times),
            "longest_s": max(times.whole, default=None),
            "boots": len(times.whole),
            "now_s": now_s,
            "limit_s": None if step is None else round(firmware_s(times, step.timeout), 1),
        }


def _waited(record: Record) -> tuple[Mutation, int] | None:
    """The step by which a node is to join, and the number of the attempt, if that is under way."""
    active = record.machine.active
    if active is None or not active.mine or active.mutation not in record.planner:
        return None
    step = record.planner.mutation(active.mutation)
    return (step, active.attempt) if step.joins else None
