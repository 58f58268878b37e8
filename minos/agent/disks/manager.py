"""Keeps the node's disks as the inventory has them: looked at and brought up as the node boots,
made where nothing is in the way.

RUN/disks.json      what was made in this boot, for an agent that starts again
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from layercake.base.files import read_json, write_json
from layercake.kraken.errors import LayercakeError, OperationFailed
from minos.agent.disks import signs
from minos.agent.disks.judge import BLANK, ERROR, FOREIGN, READY, Verdict, judge, whole
from minos.agent.disks.layout import Layout, parse
from minos.agent.disks.scan import Disk, all_of, matches
from minos.agent.disks.stack import Means, Stack
from minos.agent.head_link.outbox import EventSink
from minos.agent.state import Config
from minos.events import DISK_FAILED, DISK_FOREIGN, DISK_WIPED, DISKS, DISKS_READY

RECORD = "disks.json"
KEPT_AT = "kept"
"""Below RUN: a link to where containers keep what they keep."""
APPEAR_S = 60.0
LOOK_S = 0.5
"""Seconds that disks may take to appear after a boot; between two looks then."""


class Built(Protocol):
    """A layout over its disks (stack.Stack)."""

    def make(self) -> None:
        """Makes it anew. Raises LayercakeError."""

    def up(self, spare: Sequence[Disk] = ()) -> None:
        """Brings up what was made. Raises LayercakeError."""

    def down(self) -> None:
        """Takes it down. Raises LayercakeError."""


Stacks = Callable[[Layout, Sequence[Disk], int], Built]


class DiskManager:
    """`names` gives the lasting names of a disk in sysfs, `means` all that it is done with.
    `changed` is called when the value of `disk` may be another."""

    def __init__(
        self,
        config: Config,
        event: EventSink,
        names: Callable[[Path], list[str]],
        means: Means,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        look: Callable[[], list[Disk]] | None = None,
        signs_of: Callable[[Disk], Disk] | None = None,
        mark: Callable[[Disk], str] = signs.mark,
        stack: Stacks | None = None,
    ) -> None:
        self._config = config
        self._event = event
        self._clock = clock
        self._pause = pause
        self._means = means = replace(means, need=self._need(means.need))
        self._loading_s = 0.0
        self._disks = look or (lambda: all_of(names, means.sys))
        self._mark = mark
        self._signs = signs_of or self._with_signs
        self._stack: Stacks = stack or (
            lambda layout, disks, number: Stack(layout, disks, number, means)
        )
        self._file = config.run / RECORD
        self._turn = threading.Lock()
        self._news = threading.Event()
        self._layouts: tuple[Layout, ...] = ()
        self._broken = ""
        self._words: Mapping[str, tuple[str, str]] = {}
        self._said: dict[str, Any] = {}
        self._told: str = ""
        stored = read_json(self._file)
        known = stored if isinstance(stored, dict) and stored.get("boot") == config.boot_id else {}
        self._made: dict[str, str] = dict(known.get("made", {}))
        self._done: list[str] = list(known.get("done", ()))
        self.value = str(known.get("value", ""))
        """The value of `disk` as it was found last, "" as long as nobody has looked."""

    def _need(self, load: Callable[[str], None]) -> Callable[[str], None]:
        """Loading a module, with the time that it takes: it may come from the head."""

        def need(name: str) -> None:
            began = self._clock()
            try:
                load(name)
            finally:
                self._loading_s += self._clock() - began

        return need

    # ---- from the loop
    # -----

    def set_desired(self, document: Mapping[str, Any]) -> None:
        """Takes over what the head wants of the disks, and the words of persons: {id: (disk, mark
        of what it holds)}."""
        try:
            layouts = parse(document.get("disks"))
            broken = ""
        except OperationFailed as error:
            layouts = ()
            broken = str(error)
        document_words = document.get("disk_words")
        words = (
            {
                str(w.get("id")): (str(w.get("disk")), str(w.get("mark")))
                for w in document_words
                if isinstance(w, Mapping)
            }
            if isinstance(document_words, list)
            else {}
        )
        if (layouts, words, broken) != (self._layouts, self._words, self._broken):
            self._layouts = layouts
            self._words = words
            self._broken = broken
            self._news.set()

    def report_again(self) -> None:
        """Tells the head again how the disks are."""
        if self._said:
            self._event(DISKS, f"disks: {self.value}", **self._said)

    # ---- from the worker: the mutations of `disk`
    # ---------------------------------------------------------------------------

    def discover(self) -> str:
        """Looks, and brings up what was made before. Disks appear as their drivers come: they are
        waited for."""
        with self._turn:
            self._news.clear()
            deadline = self._clock() + APPEAR_S
            while True:
                verdicts = self._judge()
                if (
                    not any(one.few or one.missing for one in verdicts)
                    or self._clock() >= deadline
                    or self._news.is_set()
                ):
                    return self._bring_up(verdicts)
                self._pause(LOOK_S)

    def prepare(self) -> str:
        """Makes what is BLANK, and brings it up. Raises LayercakeError if that fails."""
        with self._turn:
            self._news.clear()
            verdicts = self._judge()
            if whole(verdicts) in (ERROR, FOREIGN):
                return self._bring_up(verdicts)
            began = self._clock()
            self._loading_s = 0.0
            for at, one in enumerate(verdicts):
                if one.state == BLANK:
                    verdicts[at] = self._make(one, at)
            value = self._bring_up(verdicts)
            if value == READY and verdicts:
                elapsed = self._clock() - began
                self._event(
                    DISKS_READY,
                    f"disks are ready, in {elapsed:.1f} s: "
                    + ", ".join(f"{one.layout.name} on {len(one.disks)}" for one in verdicts),
                    seconds=round(elapsed, 2),
                    loading_s=round(self._loading_s, 2),
                )
            return value

    def wait(self, interrupted: Callable[[], bool]) -> str:
        """Returns BLANK when nothing is in the way any more: inventory, a person's word or the
        disks are others; else when it is called off."""
        before = self._plain()
        while not interrupted():
            if not self._news.wait(1.0) and self._plain() == before:
                continue
            with self._turn:
                self._news.clear()
                before = self._plain()
                verdicts = self._judge()
                if whole(verdicts) not in (ERROR, FOREIGN):
                    self.value = BLANK
                    return BLANK
                self._bring_up(verdicts)
        return self.value or FOREIGN

    def close(self) -> str:
        """Takes down what is up, so that all that was written is on the disks: the machine may be
        switched off then."""
        with self._turn:
            for at, one in enumerate(self._judge()):
                if one.state in (
                    READY,
                    BLANK,
                ):  # what was begun with, too: whatever is over these disks is ours
                    try:
                        self._stack(one.layout, one.disks, at).down()
                    except LayercakeError as error:
                        os.sync()
                        self._event(
                            DISK_FAILED,
                            f"cannot close layout {one.layout.name}, its data are written: {error}",
                            layout=one.layout.name,
                        )
            self.value = BLANK
            self._save()
            return BLANK

    def _plain(self) -> list[tuple[str, tuple[str, ...]]]:
        return [
            (disk.name, tuple(part.label for part in disk.partitions)) for disk in self._disks()
        ]

    # ---- looking
    # -----

    def _with_signs(self, disk: Disk) -> Disk:
        return replace(disk, holds=signs.holds(disk, self._means.tools))

    def _judge(self) -> list[Verdict]:
        """Of the layouts, on what is there now. Raises OperationFailed for layouts that cannot be
        read."""
        if self._broken:
            raise OperationFailed(self._broken)
        wanted = self._layouts
        disks = [
            self._signs(disk) if any(matches(disk, one.match) for one in wanted) else disk
            for disk in self._disks()
        ]
        verdicts = judge(
            wanted,
            disks,
            self._config.node,
            self._free(wanted, disks),
            all(self._made.get(one.name) == one.fingerprint for one in wanted if not one.kept),
        )
        return [self._sure(one) for one in verdicts]

    def _sure(self, one: Verdict) -> Verdict:
        """What is kept and was made in this boot is not made once more, whatever its disks say."""
        if (
            one.state == BLANK
            and one.layout.kept
            and self._made.get(one.layout.name) == one.layout.fingerprint
        ):
            return replace(
                one,
                state=ERROR,
                why="it was made in this boot, and its disks do not say so any more",
            )
        return one

    def _free(self, wanted: Sequence[Layout], disks: Sequence[Disk]) -> dict[str, str]:
        """{disk: the word's id} of those that the inventory and a person have given free, as they
        are now."""
        freed = {}
        for disk in disks:
            if not disk.holds or not any(
                set(disk.names) & set(one.wipe) and matches(disk, one.match) for one in wanted
            ):
                continue
            order = next(
                (
                    name
                    for name, (which, mark) in self._words.items()
                    if which in disk.names and name not in self._done and mark == self._mark(disk)
                ),
                "",
            )
            if order:
                freed[disk.name] = order
        return freed

    # ---- acting
    # -----

    def _make(self, one: Verdict, number: int) -> Verdict:
        orders = self._free([one.layout], one.disks)
        for disk in one.disks:
            if disk.name in orders:
                self._event(
                    DISK_WIPED,
                    f"disk {disk.shown} is made anew for layout {one.layout.name}; it held "
                    f"{disk.holds}",
                    disk=list(disk.names),
                    word=orders[disk.name],
                )
        self._done += orders.values()
        self._save()  # before: a word is good once
        try:
            self._stack(one.layout, one.disks, number).make()
        except LayercakeError as error:
            self._event(
                DISK_FAILED,
                f"cannot make layout {one.layout.name}: {error}",
                layout=one.layout.name,
            )
            raise
        self._made[one.layout.name] = one.layout.fingerprint
        self._save()
        now = {disk.name: disk for disk in self._disks()}
        return Verdict(
            one.layout, READY, disks=tuple(now.get(disk.name, disk) for disk in one.disks)
        )

    def _save(self) -> None:
        write_json(
            self._file,
            {
                "boot": self._config.boot_id,
                "made": self._made,
                "done": self._done,
                "value": self.value,
            },
        )

    def _bring_up(self, found: list[Verdict]) -> str:
        """Brings up what is READY, and tells how all are. The value of `disk`."""
        for at, one in enumerate(found):
            if one.state == READY:
                found[at] = self._up(one, at)
        self.value = whole(found)
        self._save()
        self._report(found)
        return self.value

    def _up(self, one: Verdict, number: int) -> Verdict:
        try:
            self._stack(one.layout, one.disks, number).up(one.spare)
        except LayercakeError as error:
            return replace(one, state=ERROR, why=str(error))
        keeps = next((v for v in one.layout.volumes if v.keeps), None)
        if keeps is not None:
            link = self._config.run / KEPT_AT
            target = keeps.mount or f"/kept/{one.layout.name}"
            if not link.is_symlink() or str(link.readlink()) != target:
                link.unlink(missing_ok=True)
                link.symlink_to(target)
        if one.missing:
            return replace(
                one,
                why=f"it runs without {one.missing} of its {one.missing + len(one.disks)} disks"
                + (f"; spares in their places: {len(one.spare)}" if one.spare else ""),
            )
        return one

    def _disk_views(self, found: Sequence[Verdict]) -> list[dict[str, Any]]:
        """The node's disks for people, each with the layout that it belongs to and what is foreign
        on it."""
        owner = {disk.name: one.layout.name for one in found for disk in one.disks}
        foreign = {disk.name: disk for one in found for disk in one.foreign}
        return [
            {
                "name": d.name,
                "names": list(d.names),
                "bytes": d.size,
                "model": d.model,
                "path": d.path,
                "rotational": d.rotational,
                "transport": d.transport,
                "layout": owner.get(d.name, ""),
                "holds": foreign[d.name].holds if d.name in foreign else "",
                "mark": self._mark(foreign[d.name]) if d.name in foreign else "",
            }
            for d in self._disks()[:64]
        ]

    def _report(self, found: Sequence[Verdict]) -> None:
        self._said = {
            "state": self.value,
            "disks": self._disk_views(found),
            "done": self._done[-32:],
            "layouts": [
                {"name": one.layout.name, "state": one.state, "why": one.why[:500]} for one in found
            ],
        }
        self.report_again()
        why = "; ".join(f"layout {one.layout.name}: {one.why}" for one in found if one.why)
        if why and why != self._told:
            kind = DISK_FOREIGN if self.value == FOREIGN else DISK_FAILED
            self._event(
                kind, f"{why}{'; nothing of it is touched' if kind is DISK_FOREIGN else ''}"
            )
        self._told = why
