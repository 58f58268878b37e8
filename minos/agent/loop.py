"""The agent: one loop over the sync socket, the containers' ends, and what the two threads report.

The loop itself never waits for anything but its selector: mutations run on the worker, TLS on the link.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from layercake.kraken.errors import LayercakeError, WireError
from layercake.kraken.mutation import Mutation
from layercake.kraken.variables import UNKNOWN
from minos.agent.busy import is_busy, prepare
from minos.agent.early import Early
from minos.agent.link import Joined, Message, Pulled, Trouble
from minos.agent.machine import Machine
from minos.agent.state import Session
from minos.agent.sync import HelloTimer, NewEpoch, SyncCodec
from minos.agent.worker import Done, Handler, Worker

TICK = 1.0
URGENT = ("image.staged", "image.stage-failed", "image.unhealthy", "image.healthy")
"""Events that a roll on the head waits for."""
TRIM_EVERY = 10.0
VOUCHES = ("busy", "image", "run")
ALIVE = {"power": "ON", "boot": "INIT", "run": "SYNC"}
"""What an agent that has joined knows without looking."""


SERVE_DELAY = 2.0
"""Seconds from a session's begin to the agent's own API: the images go first."""


def _nothing() -> None:
    """Where there is nothing to do."""


class Look:
    """The images are in another state."""


class NodeImages(Protocol):
    """The images, as the agent sees them (imageapi.node.imageset.imageset.ImageSet)."""

    def want_documents(self, images: Sequence[Mapping[str, Any]]) -> bool:
        """Sets what is wanted; whether it is something else than before. Raises InputError."""

    def stage_documents(self, images: Sequence[Mapping[str, Any]], anew: bool) -> None:
        """Sets what shall be ready beside what runs; says of each when it is, again if `anew`. Raises InputError."""

    def state(self) -> str:
        """The value of the variable image."""

    def watched(self) -> dict[int, str]:
        """Descriptors that become readable when a container ends."""

    def ended(self, name: str) -> str:
        """A container ended; the new state."""

    def clear(self) -> None:
        """Forgets failures."""

    def logs(self, name: str, lines: int) -> str:
        """The last lines of a container. Raises InputError."""

    def tell(self, again: bool = False) -> None:
        """Tells the head how the containers are."""

    def trim_logs(self) -> None:
        """Bounds the logs."""


class Agent:
    """One node's agent. `clock` gives seconds of CLOCK_BOOTTIME, `clock_ns` its nanoseconds."""

    def __init__(self, early: Early, mutations: Sequence[Mutation], *, say: Callable[[str], None], clock: Callable[[], float],
                 clock_ns: Callable[[], int]) -> None:
        self.config, self.link, self._file, self._stored = early.config, early.link, early.file, early.session
        self._mutations = mutations
        self._say = say
        self._clock, self._clock_ns, self._jitter = clock, clock_ns, early.jitter
        self._inbox = early.inbox
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._inbox.reader, selectors.EVENT_READ, None)
        prepare(self.config.run)
        self._images: NodeImages | None = None
        self._worker: Worker | None = None
        self._machine: Machine | None = None
        self._codec: SyncCodec | None = None
        self._socket: socket.socket | None = None
        self._timer = HelloTimer(10.0)
        self._revision = 0
        self._newest = 0
        self._said: tuple[int, int, int] | None = None
        self._answered: set[int] = set()
        self._anew = True
        self._watching: dict[int, str] = {}
        self._trim_at = 0.0
        self._session: Session | None = None
        self._serve: Callable[[Session], None] | None = None
        self._serve_tell: Callable[[], None] = _nothing
        self._serve_at = math.inf
        self._stop = False

    def use(self, images: NodeImages, handlers: Mapping[str, Handler]) -> None:
        """Gives the agent its images and the handlers of its mutations; before `run`."""
        self._images = images
        self._worker = Worker(handlers, self._inbox.put)

    def serve(self, start: Callable[[Session], None], tell: Callable[[], None]) -> None:
        """Gives the agent its own API: how it is started under a session, and how the head is told of it; before `run`."""
        self._serve, self._serve_tell = start, tell

    def event(self, kind: str, text: str, severity: str = "info", **data: Any) -> None:
        """Something happened: into the node's history on the head, and what concerns images on the console too."""
        if severity != "debug" and kind.startswith(("image.", "container.", "quarantine.")):
            self._say(f"agent: {text.splitlines()[0]}")
        self.link.events(kind, text, severity, **data)
        if kind in URGENT:
            self.link.hurry()

    def look(self) -> None:
        """Asks the loop to look at the images; from any thread."""
        self._inbox.put(Look())

    def _terminate(self, number: int, frame: object) -> None:
        self._stop = True
        self._inbox.wake()

    # ---- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Runs until SIGTERM. The containers stay."""
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGINT, self._terminate)
        if self._stored:
            self._begin(self._stored, self._file.load_desired())
            self.link.pull()
        while not self._stop:
            self._once()

    def _once(self) -> None:
        self._watch_containers()
        for key, _ in self._selector.select(self._timeout()):
            if key.fileobj is self._socket:
                self._read_socket()
            elif key.fd != self._inbox.reader:
                self._container_ended(key.fd)
        for message in self._inbox.take():
            self._take(message)
        machine = self._machine
        if machine is None:
            return
        now = self._clock()
        if now >= machine.wake:
            machine.tick()
        self._look_busy(machine)
        self._trim()
        self._hello(machine)
        if now >= self._serve_at and self._serve is not None and self._session is not None:
            self._serve_at = math.inf
            threading.Thread(target=self._serve, args=(self._session,), name="serve", daemon=True).start()

    def _timeout(self) -> float:
        now = self._clock()
        wait = TICK
        if self._machine is not None:
            wait = min(wait, self._machine.wake - now, self._timer.due - now)
        return max(0.0, wait)

    def _take(self, message: Message | Done | Look) -> None:
        if isinstance(message, Joined):
            self._say(f"agent: joined, session {message.session.number}")
            self._begin(message.session, message.desired)
        elif isinstance(message, Pulled):
            self._desired(message.desired)
        elif isinstance(message, Trouble):
            self._say(f"agent: {message.text}")
        elif isinstance(message, Look):
            if self._machine is not None:
                self._look_at_images(self._machine)
        elif self._machine is not None and self._worker is not None:
            job = message.job
            if job is self._worker.current:
                # Interrupted and still under way: it is the image set that changed, not the step.
                self._machine.done(job.mutation, job.attempt, message.found, message.error, job.stop.is_set())
            elif message.found:
                self._machine.discovered(message.found, f"{job.mutation} found it")
            self._look_at_images(self._machine)

    # ---- the session -----------------------------------------------------------------------------------------------

    def _begin(self, session: Session, desired: Mapping[str, Any] | None) -> None:
        """Starts to work under a session."""
        if self._worker is None or self._images is None:
            raise LayercakeError("cannot run the agent: it has no images to work on")
        self._session, self._serve_at = session, self._clock() + SERVE_DELAY
        self._codec = SyncCodec(self.config.node_bytes, session.number, session.key, session.epoch, session.layout.digest)
        self._machine = Machine(self._mutations, session.layout, self._worker, self.event, self._clock, self._jitter)
        self._timer = HelloTimer(session.hello_s)
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
        host, port = session.sync
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.connect((host, port))
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._machine.discovered({**ALIVE, "busy": self._busy()}, "the agent runs")
        if desired is not None:
            self._desired(desired, first=True)
        self._timer.now()

    def _desired(self, desired: Mapping[str, Any], first: bool = False) -> None:
        """Takes a desired state over."""
        machine, images = self._machine, self._images
        if machine is None or images is None:
            return
        self._revision = int(desired["revision"])
        self._newest = max(self._newest, self._revision)
        changed = False
        try:
            changed = images.want_documents(desired.get("images", []))
        except LayercakeError as error:
            self.event("image.error", str(error), "error")
        self._stage(images, desired.get("stage") or [])
        goal = machine.goal_of(desired.get("goal", {}))
        if changed and self._worker:
            self._worker.interrupt()
        if not first and goal != machine.node.goal:
            images.clear()
        self._file.save_desired(desired)
        if desired.get("goal", {}).get("run") == "SYNC" and machine.value("run") == "INIT":
            machine.discovered({"run": "SYNC"}, "the node is wanted again")
        machine.desired(goal, changed, self._images_found(machine))
        for request in desired.get("requests", []):
            self._request(request, machine)
        self._timer.now()

    def _stage(self, images: NodeImages, documents: Sequence[Mapping[str, Any]]) -> None:
        """Has content made ready that a roll will want. A head that was started again may have missed what was said of it."""
        anew, self._anew = self._anew, False
        try:
            images.stage_documents(documents, anew)
        except LayercakeError as error:
            self.event("image.stage-failed", str(error), "warning", error=str(error))

    def _request(self, request: Mapping[str, Any], machine: Machine) -> None:
        """One of the head's requests; each number is answered once."""
        number, images = int(request["id"]), self._images
        if number in self._answered or images is None:
            return
        self._answered.add(number)
        if request.get("kind") == "clear":
            images.clear()
            machine.clear("the head's operator")
            self._look_at_images(machine)
            self.link.answer(number, {"ok": True})
        elif request.get("kind") == "logs":
            name, lines = str(request.get("container", "")), max(1, min(int(request.get("lines", 200)), 10_000))
            threading.Thread(target=self._logs, args=(images, number, name, lines), daemon=True).start()
        else:
            self.link.answer(number, {"ok": False, "error": f"this agent does not know {str(request.get('kind'))[:40]!r}"})

    def _logs(self, images: NodeImages, number: int, name: str, lines: int) -> None:
        """Runs on a thread: asking a systemd journal takes its time."""
        try:
            self.link.answer(number, {"ok": True, "text": images.logs(name, lines)})
        except (LayercakeError, OSError) as error:
            self.link.answer(number, {"ok": False, "error": str(error)})

    # ---- what is seen ------------------------------------------------------------------------------------------------

    def _watch_containers(self) -> None:
        """Keeps the selector at what the image set watches; a closed descriptor has left epoll by itself."""
        watched = self._images.watched() if self._images else {}
        if watched == self._watching:
            return
        for handle in self._watching.keys() - watched.keys():
            with contextlib.suppress(KeyError, ValueError, OSError):
                self._selector.unregister(handle)
        for handle in watched:
            if self._watching.get(handle) != watched[handle]:
                with contextlib.suppress(KeyError, ValueError, OSError):
                    self._selector.unregister(handle)
                with contextlib.suppress(OSError):  # it was closed meanwhile; the next round knows
                    self._selector.register(handle, selectors.EVENT_READ)
        self._watching = watched

    def _container_ended(self, handle: int) -> None:
        name = self._watching.get(handle)
        if name is None or self._images is None:
            return
        self._images.ended(name)
        if self._machine:
            self._look_at_images(self._machine)

    def _look_at_images(self, machine: Machine) -> None:
        """Tells the machine when the images are in another state than it thinks; not before it has asked itself."""
        if found := self._images_found(machine):
            machine.discovered(found, "the images changed")

    def _images_found(self, machine: Machine) -> dict[str, str]:
        """The images' state, if it is another than the machine thinks."""
        known = machine.value("image")
        if self._images is None or known == UNKNOWN:
            return {}  # the machine has not asked itself yet
        state = self._images.state()
        return {"image": state} if state != known else {}

    def _busy(self) -> str:
        return "BUSY" if is_busy(self.config.run) else "FREE"

    def _look_busy(self, machine: Machine) -> None:
        if machine.value("run") == "SYNC" and machine.value("busy") != (busy := self._busy()):
            machine.discovered({"busy": busy}, "layercake-busy said so")

    def _trim(self) -> None:
        if self._images is not None and self._clock() >= self._trim_at:
            self._trim_at = self._clock() + TRIM_EVERY
            self._images.trim_logs()

    # ---- datagrams ---------------------------------------------------------------------------------------------------

    def _hello(self, machine: Machine) -> None:
        """Says HELLO if something has changed or the time has come."""
        if self._codec is None or self._socket is None:
            return
        mask, state = machine.report(VOUCHES)
        news = (self._codec.epoch, self._revision, state)
        now = self._clock()
        if news == self._said and now < self._timer.due:
            return
        data = self._codec.hello(self._clock_ns(), revision=self._revision, changes=machine.changes, mask=mask, state=state)
        with contextlib.suppress(OSError):  # no route, or nobody listens: the timer brings the next chance
            self._socket.send(data)
        self._said = news
        self._timer.said(now, self._jitter())

    def _read_socket(self) -> None:
        while self._socket is not None and self._codec is not None:
            try:
                said = self._codec.receive(self._socket.recv(2048))
            except WireError:
                continue
            except (BlockingIOError, ConnectionError):
                return
            except OSError as error:
                self._say(f"agent: cannot read the sync socket: {error}")
                return
            self._timer.answered(self._clock(), self._jitter())
            if isinstance(said, NewEpoch):
                self._say("agent: the head was started again")
                self._timer.now()
                self._newest = 0
                self._answered.clear()
                self._anew = True
                if self._images is not None:
                    self._images.tell(again=True)
                self._serve_tell()
                self.link.pull()
                continue
            if said.probe:
                self._timer.now()
            if said.revision > self._newest:
                self._newest = said.revision
                self.link.pull()
