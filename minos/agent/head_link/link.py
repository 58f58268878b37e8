"""The node's TLS connection to the head: joining, the desired state, events and answers. A thread
of its own.

Everything is tried again with back-off while the head is away. A refused join is said with its
reason and tried again slowly: the head decides whether this boot may join, and a node that rebooted
itself over it would do so for ever.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from layercake.base.text import parse_json
from layercake.kraken.backoff import backoff
from layercake.kraken.errors import LayercakeError, OperationFailed, Refused, Unreachable
from layercake.kraken.events import EventKind, Severity
from layercake.kraken.wire import bearer
from minos.agent.head_link.connection import HeadConnection
from minos.agent.head_link.known_heads import KnownHeads
from minos.agent.head_link.outbox import Outbox
from minos.agent.head_link.trust import outdated, taken
from minos.agent.state import Config, Session, parse_join

BACKOFF_FIRST = 0.25
BACKOFF_MAX = 10.0
SEARCH_MAX = 2.0
"""Seconds between two attempts at most, where one of several heads may begin to act."""
REFUSED_WAIT = 60.0
EVENT_DELAY = 0.25
"""Seconds that events are gathered for; short beside what a person notices."""
DRAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Joined:
    """The head took this node in."""

    session: Session
    desired: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pulled:
    """The desired state as the head has it now."""

    desired: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Renewed:
    """The session goes on with another certificate."""

    session: Session


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something to print on the console."""

    text: str


Message = Joined | Pulled | Renewed | Trouble


class HeadLink:
    """The thread. `post` is called from it with each Message."""

    def __init__(
        self,
        config: Config,
        session: Session | None,
        heads: KnownHeads,
        post: Callable[[Message], None],
        *,
        now: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self._config = config
        self._session = session
        self._heads = heads
        self._post = post
        self._jitter = jitter
        self._changed = threading.Condition()
        self._pull = self._hurry = self._sending = self._draining = self._urgent = (
            self._outdated
        ) = False
        self._answers: list[tuple[int, dict[str, Any]]] = []
        self._outbox = Outbox(self._wake, now)
        self._authorization = ""
        self.handed_in = 0
        """How often the head has taken events or an answer."""
        self._connection = HeadConnection(config, session, heads)

    def start(self) -> None:
        """Starts the thread."""
        threading.Thread(target=self.run, name="link", daemon=True).start()

    # ---- from other threads
    # ----------------------------------------------------------------------------------------

    def pull(self) -> None:
        """Fetches the desired state."""
        with self._changed:
            self._pull = self._hurry = True
            self._changed.notify_all()

    def head_moved(self) -> None:
        """Another head acts: the one before is not waited for."""
        self._connection.interrupt()

    def answer(self, number: int, body: dict[str, Any]) -> None:
        """Answers one of the head's requests."""
        with self._changed:
            self._answers.append((number, body))
            self._changed.notify_all()

    def drain(self, timeout: float = DRAIN_S) -> None:
        """Waits until the head has all events, or gives up: a node that shall be switched off has
        to say first what it did."""
        with self._changed:
            self._draining = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not (self._sending or len(self._outbox)), timeout)
            self._draining = False

    def report_event(
        self, kind: EventKind, text: str, severity: Severity | None = None, **data: Any
    ) -> None:
        """Tells the head of an event: with others that come soon after, or at once if somebody
        waits for this kind."""
        self._outbox.add(kind, text, severity, data)
        if kind.urgent:
            with self._changed:
                self._urgent = True
                self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # ---- the thread
    # -----

    def run(self) -> None:
        """Joins, and works from then on; what fails is tried again after a pause. Never returns."""
        failures = 0
        while True:
            try:
                if self._session is None:
                    self.join()
                else:
                    self._wait_for_work()
                    self.work()
                failures = 0
                continue
            except Refused as error:
                self._post(Trouble(f"{error}; next attempt in {REFUSED_WAIT:.0f} s"))
                wait = REFUSED_WAIT
            except (LayercakeError, OSError) as error:
                failures += 1
                most = SEARCH_MAX if self._heads.several else BACKOFF_MAX
                wait = backoff(failures, BACKOFF_FIRST, most) * (0.75 + 0.5 * self._jitter())
                if failures in (1, 4) or failures % 32 == 0:
                    self._post(Trouble(str(error)))
            # A malformed answer must not end the thread; it is told.
            except Exception as error:  # noqa: BLE001
                failures += 1
                wait = BACKOFF_MAX
                self._post(Trouble(f"the link to the head failed: {error!r}"))
            self._connection.close()
            if self._pause(wait):
                failures = 0

    def _pause(self, seconds: float) -> bool:
        """Waits; only `pull` cuts it short, because then the head has just spoken. Whether it did,
        now or during the attempt that failed: a head that was started again says so by datagrams
        before its TLS listens."""
        with self._changed:
            hurried = self._changed.wait_for(lambda: self._hurry, seconds)
            self._hurry = False
            return hurried

    def join(self) -> None:
        """Asks the head for a session. Raises Unreachable or what the head answers."""
        config = self._config
        claim = {
            "node": config.node,
            "token": config.token,
            "boot_id": config.boot_id,
            "mac": config.mac,
            "version": config.version,
            "boot": config.boot,
            "agent": config.agent,
            "mutual": True,
            "tpm": True,
        }
        answer = self._call("POST", "/node/v1/join", claim)
        if isinstance(answer, Mapping) and "attest" in answer:
            from minos.tpm.proof import prove  # here: most sites ask for no TPM

            token = prove(
                lambda said: self._call("POST", "/node/v1/attest", {**claim, "tpm": said})
            )
            answer = self._call("POST", "/node/v1/join", {**claim, "pass": token})
        self._authorization = ""
        session = parse_join(answer)
        self._learn(answer["desired"])
        self._post(Joined(session, answer["desired"]))
        self._go_on(session)

    def _go_on(self, session: Session) -> None:
        """From now on the head is spoken to with the certificate of this session, and the
        authorities of now are trusted."""
        self._connection.close()
        self._connection = HeadConnection(self._config, session, self._heads)
        self._session = session

    def _learn(self, document: object) -> None:
        """Which heads there are by now. Raises Unreachable for what a head says that acts no
        more."""
        if not self._heads.learn(document):
            raise Unreachable("the head that answers is one that does not act any more")

    def _wait_for_work(self) -> None:
        with self._changed:
            while not (self._pull or self._outdated or self._answers or len(self._outbox)):
                self._changed.wait()
            # Events come in bursts, in the middle of a roll: one request for all, a little later,
            # off its critical path.
            self._changed.wait_for(
                lambda: self._pull or self._draining or self._urgent or bool(self._answers),
                EVENT_DELAY,
            )

    def work(self) -> None:
        """One round of what is to be done. What fails stays to be done."""
        if self._pull:
            self._pull = False
            try:
                document = self._call("GET", "/node/v1/desired")
                self._learn(document)
            except BaseException:
                self._pull = True
                raise
            self._post(Pulled(document))
            self._outdated = self._session is not None and outdated(
                self._config, self._session, document
            )
        if self._outdated and self._session is not None:
            session = taken(self._config, self._session, self._call("GET", "/node/v1/trust"))
            self._post(Renewed(session))
            self._go_on(session)
            self._outdated = False
        self._send_events()
        while self._answers:
            number, body = self._answers[0]
            try:
                self._call("POST", f"/node/v1/answers/{number}", body)
                self.handed_in += 1
            except Unreachable:
                raise
            except BaseException:
                self._forget_answer()
                raise
            self._forget_answer()

    def _send_events(self) -> None:
        """Hands the events in. Before the answers: whoever has an answer has what happened before
        it."""
        with self._changed:
            batch = self._outbox.next_batch()
            self._sending = True
            self._urgent = False
        try:
            if batch:
                self._call("POST", "/node/v1/events", batch)
                self.handed_in += 1
        except OperationFailed:
            # the head has seen them and will not have them: they are lost, and the console says why
            raise
        except BaseException:
            self._outbox.put_back(batch)
            raise
        finally:
            with self._changed:
                self._sending = False
                self._changed.notify_all()

    def _forget_answer(self) -> None:
        with self._changed:
            self._answers.pop(0)

    def _call(self, method: str, path: str, body: object = None) -> Any:
        """One exchange in JSON. Raises Unreachable, Refused (403), OperationFailed (any other
        refusal)."""
        headers = {"Content-Type": "application/json"}
        if self._session is not None:
            self._authorization = self._authorization or bearer(
                self._session.key, self._config.node_bytes, self._session.number
            )
            headers["Authorization"] = self._authorization
        data = b"" if body is None else json.dumps(body).encode()
        status, answer = self._connection.request(method, path, headers, data)
        try:
            parsed = parse_json(answer) if answer else {}
        except ValueError:
            parsed = {}
        if status == 200:
            return parsed
        reason = parsed.get("error", "") if isinstance(parsed, dict) else ""
        if status == 403:
            raise Refused(
                f"the head refuses: {reason or 'no reason given'}", hint=str(parsed.get("hint", ""))
            )
        if status >= 500:
            raise Unreachable(f"the head answers {status} to {path}")
        raise OperationFailed(f"the head answers {status} to {path}: {reason}")
