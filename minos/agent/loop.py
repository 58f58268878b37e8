"""The agent: one loop over the datagrams, the containers' ends, and what its threads report.

It never waits for anything but its selector: mutations run on the worker's thread (worker.py), TLS
on the link's (head_link/link.py).
"""

from __future__ import annotations

import dataclasses
import math
import selectors
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from layercake.kraken.errors import OperationFailed
from minos.agent.background import Background
from minos.agent.busy import Busy, prepare
from minos.agent.core import AgentCore, Look, Pressed
from minos.agent.hardware import Came, Hardware
from minos.agent.head_link.link import Joined, Message, Pulled, Renewed, Trouble
from minos.agent.head_link.sync_socket import SyncSocket
from minos.agent.machine import ALIVE, VOUCHES, Machine
from minos.agent.state import Session
from minos.agent.swap import Swap
from minos.agent.wanted import NO_COMMANDS, Commands, NodeImages, Orders, Wanted, check, no_orders
from minos.agent.worker import Done, Worker
from minos.events import BUTTON
from minos.syscalls import release_memory

if TYPE_CHECKING:
    from minos.agent.clock.ntp_client import NtpClient
    from minos.agent.thermal.monitor import ThermalMonitor

TICK = 1.0
"""Seconds between two looks while something is under way that nobody reports, like drivers that are
fetched, or another agent that gets ready."""
REST = 10.0
"""Seconds between two looks at a node at rest, at most: a HELLO is due before that. The node
computes, and each look takes a core from it."""
TRIM_EVERY = 10.0
SERVE_DELAY = 2.0
"""Seconds from a session's begin to the node's own API: the images go first."""
OFF_S = 90.0
"""Seconds from the power button until the machine goes off, whether its images have stopped or
not."""
DRIVERS_DELAY = 5.0
"""Seconds from a session's begin for which drivers that the boot profile does not have wait while
the images are being started."""


class NodeNetwork(Protocol):
    """The node's interfaces (network/late.py)."""

    def set_desired(self, document: Mapping[str, Any], session: Session) -> None:
        """Wants what a desired state says of them."""

    def head_restarted(self) -> None:
        """The head knows nothing of them."""


class NodeFiles(Protocol):
    """The node's own files (files/manager.py)."""

    def set_desired(self, document: Mapping[str, Any], session: Session) -> None:
        """Wants what a desired state says of them."""

    def images_started(self) -> None:
        """Images may have been started."""

    def report_again(self) -> None:
        """Tells the head again how they are."""

    def disks(self) -> str:
        """The value of the variable disk, "" if nobody has looked."""


class NodeApi(Protocol):
    """The node's own API (layercake/node/serving.py)."""

    def start(self, session: Session) -> None:
        """Serves under a session. Takes a moment: it is called on a thread of its own."""

    def announce(self, session: Session) -> None:
        """Tells the head where it listens."""

    def renew(self, session: Session) -> None:
        """Goes on with another certificate."""


class Ended(Protocol):
    """The containers whose ends are waited for (imageapi/node/imageset/imageset.py)."""

    def watched(self) -> dict[int, str]:
        """Descriptors that become readable when a container ends, with its id."""

    def ended(self, name: str) -> object:
        """Called when a container's descriptor is readable."""


class Ends:
    """Has the selector wait for the ends of containers.

    Other threads close and open these descriptors, so their numbers are used again, and children
    that are forked meanwhile hold what they stood for: epoll would go on telling of a container's
    end under the number that another one has now. poll(2) knows nothing but numbers, and no more
    than it is told each time.
    """

    def __init__(self, containers: Ended, selector: selectors.PollSelector) -> None:
        self._containers = containers
        self._selector = selector
        self._watching: dict[int, str] = {}

    def watch(self) -> None:
        """Called before each wait."""
        watched = self._containers.watched()
        for handle in self._watching.keys() - watched.keys():
            self._selector.unregister(handle)
        for handle in watched.keys() - self._watching.keys():
            self._selector.register(handle, selectors.EVENT_READ)
        self._watching = watched

    def hears(self, handle: int) -> bool:
        """Tells of an end, if it is this that became readable."""
        if handle not in self._watching:
            return False
        self._containers.ended(self._watching[handle])
        return True


@dataclass(frozen=True, slots=True)
class Work:
    """What there is as soon as the node has a session."""

    session: Session
    sync: SyncSocket
    machine: Machine
    wanted: Wanted


class Agent:
    """One node's agent. `clock` gives seconds of CLOCK_BOOTTIME, `clock_ns` its nanoseconds.
    `power_off` switches the machine off at once; None for one that is not the agent's own."""

    def __init__(
        self,
        core: AgentCore,
        images: NodeImages,
        worker: Worker,
        api: NodeApi,
        network: NodeNetwork,
        files: NodeFiles,
        *,
        orders: Orders = no_orders,
        commands: Commands = NO_COMMANDS,
        power_off: Callable[[], None] | None = None,
        clock: Callable[[], float],
        clock_ns: Callable[[], int],
    ) -> None:
        self._core = core
        self._images = images
        self._worker = worker
        self._api = api
        self._network = network
        self._files = files
        self._orders = orders
        self._commands = commands
        self._clock = clock
        self._clock_ns = clock_ns
        self._selector = selectors.PollSelector()
        self._selector.register(core.inbox.reader, selectors.EVENT_READ)
        prepare(core.config.run)
        self._busy = Busy(core.config.run, self._selector, clock, core.say)
        self._background = Background(core.event)
        self._hardware = Hardware(core.config, core.event, core.inbox.post)
        self._swap = Swap(core.config, core.event, core.inbox.wake)
        self._work: Work | None = None
        self._ends = Ends(images, self._selector)
        self._trim_at = 0.0
        self._ntp_client: NtpClient | None = None
        self._thermal_monitor: ThermalMonitor | None = None
        self._document: Mapping[str, Any] = {}
        self._serve_at = math.inf
        self._drivers_at = 0.0
        self._power_off = power_off
        self._off_at = math.inf
        self._stop = False

    def run(self) -> None:
        """Runs until SIGTERM, or until another agent is to take over. The containers stay. Raises
        LayercakeError."""
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGINT, self._terminate)
        if self._core.session:
            self._begin(self._core.session, self._core.file.load_desired())
            self._core.link.pull()
        while not self._stop:
            self._once()
            if (
                self._swap.ready
                and self._work is not None
                and self._work.machine.node.active is None
            ):
                self._core.link.drain()  # what this agent has seen is told by it
                return

    def _terminate(self, number: int, frame: object) -> None:
        self._stop = True
        self._core.inbox.wake()

    def _begin(self, session: Session, desired: Mapping[str, Any] | None) -> None:
        """Starts to work under a session; there is one in an agent's life."""
        core = self._core
        sync = SyncSocket(
            core.config,
            session,
            core.heads,
            core.link,
            say=core.say,
            jitter=core.jitter,
            clock=self._clock,
            clock_ns=self._clock_ns,
        )
        machine = Machine(session, self._worker, core.event, self._clock, core.jitter)
        wanted = Wanted(
            self._images,
            machine,
            core.link,
            core.file,
            self._worker.interrupt,
            partial(self._orders, self._hardware.settled),
            self._commands,
        )
        self._work = Work(session, sync, machine, wanted)
        self._ends.watch()  # a container's descriptor that was closed may have had the number
        self._selector.register(sync, selectors.EVENT_READ)
        self._serve_at = self._clock() + (
            0.0 if core.session else SERVE_DELAY
        )  # after another agent the images run already
        self._drivers_at = self._clock() + DRIVERS_DELAY
        self._swap.begin()
        machine.discovered({**ALIVE, "busy": self._is_busy()}, "the agent runs")
        if desired is not None:
            self._desired(self._work, desired, first=True)
        if self._power_off is not None:  # before its driver is there: no press is missed
            from minos.agent.button import Button

            Button(core.inbox.post, core.say).start()

    # ---- the loop
    # -----

    def _once(self) -> None:
        self._ends.watch()
        for key, _ in self._selector.select(self._timeout()):
            if self._work is not None and key.fileobj is self._work.sync:
                self._hear(self._work)
            elif self._busy.hears(key.fileobj):
                pass  # _look_around looks
            elif self._ends.hears(key.fd):
                self._look_at_images()
        for message in self._core.inbox.drain():
            self._handle(message)
        if self._work is not None:
            self._look_around(self._work)

    def _timeout(self) -> float:
        due = self._busy.due
        if self._work is not None:
            due = min(due, self._work.machine.wake, self._work.sync.due, self._serve_at)
        longest = REST if self._at_rest() else TICK
        return max(0.0, min(longest, due - self._clock()))

    def _at_rest(self) -> bool:
        """Whether all that may happen next wakes the loop: names that come in the agent's directory
        tell of BUSY and of hardware, messages of all that is done on other threads."""
        return (
            self._work is not None
            and self._work.machine.node.active is None
            and self._busy.watched
            and not self._hardware.pending
            and not self._swap.pending
            and self._off_at == math.inf
        )

    def _look_around(self, work: Work) -> None:
        """What is done in every round."""
        now = self._clock()
        machine = work.machine
        self._look_at_head(work)
        if now >= machine.wake:
            machine.tick()
        busy = self._is_busy()
        if machine.value("run") == "SYNC" and machine.value("busy") != busy:
            machine.discovered({"busy": busy}, "layercake-busy said so")
        self._background.give_way(busy == "BUSY" and not self._awaited(machine))
        machine.disks_are(self._files.disks())
        if now >= self._trim_at:
            self._trim_at = now + TRIM_EVERY
            self._images.trim_logs()
        self._hardware.poll(work.session, now >= self._drivers_at or machine.node.active is None)
        mask, state = machine.report(VOUCHES)
        work.sync.hello(
            revision=work.wanted.revision, changes=machine.changes, mask=mask, state=state
        )
        if self._power_off is not None and (
            now >= self._off_at or (self._off_at != math.inf and machine.value("run") == "INIT")
        ):
            self._core.link.drain()
            self._power_off()
        if now >= self._serve_at:
            self._serve_at = math.inf
            threading.Thread(
                target=self._api.start, args=(work.session,), name="serve", daemon=True
            ).start()
            self._keep_watch()

    def _keep_watch(self) -> None:
        from minos.agent.clock.ntp_client import NtpClient  # here: the images go first
        from minos.agent.thermal.governor import Governors
        from minos.agent.thermal.monitor import ThermalMonitor

        self._ntp_client = NtpClient(self._core.config.ntp, self._core.event)
        self._ntp_client.start()
        self._thermal_monitor = ThermalMonitor(
            self._core.event, Governors(Path(self._core.config.run, "governors.json"))
        )
        self._thermal_monitor.set_desired(self._document)
        self._thermal_monitor.start()
        release_memory()

    def _handle(self, message: Message | Done | Look | Came | Pressed) -> None:
        if isinstance(message, Joined):
            self._core.say(f"agent: joined, session {message.session.number}")
            self._begin(message.session, message.desired)
        elif isinstance(message, Trouble):
            self._core.say(f"agent: {message.text}")
        elif isinstance(message, Look):
            self._look_at_images()
        elif self._work is not None:
            self._handle_in_session(self._work, message)

    def _handle_in_session(
        self, work: Work, message: Renewed | Pulled | Done | Came | Pressed
    ) -> None:
        if isinstance(message, Pressed):
            self._go_off(work)
        elif isinstance(message, Came):
            # one may have wanted the file of a device that had no driver: it is tried again at once
            self._images.clear()
            work.machine.clear("drivers have come")
            self._look_at_images()
        elif isinstance(message, Renewed):
            self._work = dataclasses.replace(work, session=message.session)
            self._api.renew(message.session)
        elif isinstance(message, Pulled):
            self._desired(work, message.desired)
        else:
            self._done(work.machine, message)

    def _go_off(self, work: Work) -> None:
        """The power button was pressed. From now on nothing else is wanted of the node."""
        if self._off_at == math.inf:
            self._off_at = self._clock() + OFF_S
            self._core.event(
                BUTTON,
                "the power button was pressed, or the BMC asked for it: the images are stopped, "
                "and the "
                "machine goes off",
            )
            self._desired(work, self._document)

    def _done(self, machine: Machine, ended: Done) -> None:
        """A mutation's attempt has ended."""
        job = ended.job
        if job is self._worker.current:
            # An attempt that was asked to stop is still the newest one: other images are wanted
            # now, but by the same step. The machine begins it anew.
            machine.done(job.mutation, job.attempt, ended.found, ended.error, job.stop.is_set())
        elif ended.found:
            machine.discovered(ended.found, f"{job.mutation} found it")
        self._look_at_images()
        self._files.images_started()

    def _desired(self, work: Work, document: Mapping[str, Any], first: bool = False) -> None:
        adjusted = (
            document
            if self._off_at == math.inf
            else {**document, "stage": [], "goal": {"power": "OFF"}}
        )
        try:
            check(adjusted)
            self._background.set_desired(adjusted)
            self._network.set_desired(
                adjusted, work.session
            )  # first: images that start wait until the interfaces are there
            self._files.set_desired(adjusted, work.session)
            work.wanted.accept(adjusted, first)
        except OperationFailed as error:  # the node goes on with what it had
            self._core.say(f"agent: {error}")
            return
        self._document = document
        if self._thermal_monitor is not None:
            self._thermal_monitor.set_desired(document)
        work.sync.took(work.wanted.revision)
        self._swap.set_desired(document.get("agent"), work.session)

    def _hear(self, work: Work) -> None:
        """Datagrams have come."""
        work.sync.read()
        self._look_at_head(work)
        if work.sync.answered:
            self._swap.answered()

    def _look_at_head(self, work: Work) -> None:
        """What a head keeps in memory only is told again to one that was started again."""
        if not work.sync.takes_over():
            return
        work.wanted.head_restarted()
        self._images.report_containers(again=True)
        self._api.announce(work.session)
        self._network.head_restarted()
        self._files.report_again()
        self._hardware.head_restarted()
        self._background.report_again()
        if self._ntp_client is not None:
            self._ntp_client.report_again()
        if self._thermal_monitor is not None:
            self._thermal_monitor.report_again()
        self._swap.begin()

    # ---- what is seen
    # -----

    def _look_at_images(self) -> None:
        if self._work is not None:
            self._work.machine.images_are(self._images.state())

    def _awaited(self, machine: Machine) -> bool:
        """Whether anybody waits for what the agent does: a step of the node, a command or a
        question of a person's, a machine that goes off."""
        return (
            machine.node.active is not None
            or bool(self._document.get("requests"))
            or self._off_at != math.inf
        )

    def _is_busy(self) -> str:
        return "BUSY" if self._busy.poll() else "FREE"
