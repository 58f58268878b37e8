"""Where lines come from: the head's own log, containers' logs and consoles of the nodes that a
collector asks for."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from layercake.agents.client import NodeLink
from layercake.base.logs.journal import FIELDS
from layercake.base.logs.lines import AUDIT, Lines, Repeats
from layercake.base.secrets import Vault
from layercake.base.text import count_of
from layercake.features.consoles.operations import Attached
from layercake.features.logs.budget import Budget
from layercake.features.logs.entry import LINE, Entry, plain
from layercake.features.logs.sender import Sender
from layercake.features.logs.settings import LogSettings
from layercake.fleet.store import Record, Store
from layercake.inventory.ranges import expand
from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.event_loop.tasks import cancel_all
from layercake.modules.calls import AskModule

log = logging.getLogger("layercake.logs")
LOOK_S = 5.0
AGAIN_S = 10.0
"""Between two looks at whose logs are wanted, and before one that has ended is asked for again."""
MOST = 1000
"""Containers and consoles that are followed at a time; each is a connection."""
YOUNG_S = 60.0
EARLIER = 1000
"""Of a container that has run for less than so many seconds when its node told of it, so many lines
from before are sent too: what it says as it starts is over before it is known that it runs."""
WHO = "logs"
_LEVELS = {
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "none": logging.CRITICAL + 1,
}
_SEVERITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_OWN = {"LAYERCAKE_KIND": "kind", "LAYERCAKE_EVENT": "event", "LAYERCAKE_NODE": "node"}
Key = tuple[str, str, str]
"""What is followed: "container" or "console", the id of a node, the name of the container."""


class Own(logging.Handler):
    """The head's own log to the senders. What one line of code says again and again is counted, as
    in the log itself."""

    def __init__(self, senders: Iterable[Sender]) -> None:
        super().__init__()
        self._senders = [(sender, _LEVELS[sender.settings.level]) for sender in senders]
        self.setFormatter(Lines("%(message)s"))
        self.addFilter(Repeats(self.emit))

    def emit(self, record: logging.LogRecord) -> None:
        """One record, of any thread."""
        fields = {
            _OWN[key]: str(value)
            for key, value in getattr(record, FIELDS, {}).items()
            if key in _OWN and value
        }
        severity = next((number for level, number in _SEVERITIES if record.levelno >= level), 7)
        entry = Entry(
            record.created,
            severity,
            plain(self.format(record)),
            fields={"logger": record.name, **fields},
        )
        for sender, least in self._senders:
            if record.levelno >= least:
                sender.waiting.add(entry)


class AuditRecords(logging.Handler):
    """The audit records to the senders that ask for them; each of them, however many there are."""

    def __init__(self, senders: Iterable[Sender]) -> None:
        super().__init__()
        self._senders = [sender for sender in senders if sender.settings.audit]
        self._logger = logging.getLogger(AUDIT)

    def start(self) -> None:
        """From now on."""
        if self._senders:
            self._logger.addHandler(self)
            self._logger.setLevel(logging.DEBUG)

    def stop(self) -> None:
        """No more."""
        self._logger.removeHandler(self)
        self._logger.setLevel(logging.NOTSET)

    def emit(self, record: logging.LogRecord) -> None:
        """One record."""
        entry = Entry(record.created, 6, record.getMessage(), fields={"source": "audit"})
        for sender in self._senders:
            sender.waiting.add(entry)


class Pieces:
    """Lines out of bytes as they come: a long one is cut, and nothing that a terminal would act on
    is left. Pure."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def cut(self) -> None:
        """Something is left out here: what was begun has no end."""
        self._decoder.reset()
        self._rest = ""

    def add(self, data: bytes) -> list[str]:
        """The lines that are whole now."""
        *whole, self._rest = (self._rest + self._decoder.decode(data)).split("\n")
        if len(self._rest) > LINE:
            whole.append(self._rest)
            self._rest = ""
        return [plain(line.rstrip("\r")) for line in whole if line.strip()]


class Followers:
    """Follows what the senders ask for."""

    def __init__(
        self, store: Store, node_link: NodeLink, ask: AskModule, senders: Iterable[Sender]
    ) -> None:
        self._store = store
        self._node_link = node_link
        self._ask = ask
        self._senders = list(senders)
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._wanted: dict[Key, list[Sender]] = {}
        self._told: dict[str, str] = {}
        self._pids: dict[Key, int] = {}
        self._budget = Budget(time.monotonic)

    async def run(self) -> None:
        """For ever."""
        try:
            while True:
                self.reconcile()
                await asyncio.sleep(LOOK_S)
        finally:
            await cancel_all(self._tasks.values())

    def reconcile(self) -> None:
        """Begins with what is wanted, and ends with what is not any more."""
        self._wanted = self._find()
        for key in [key for key in self._tasks if key not in self._wanted]:
            self._tasks.pop(key).cancel()
        for key in self._wanted:
            if key not in self._tasks or self._tasks[key].done():
                self._tasks[key] = asyncio.create_task(self._follow(key))

    def _find(self) -> dict[Key, list[Sender]]:
        found: dict[Key, list[Sender]] = {}
        for sender in self._senders:
            for record in self._range(sender, "containers", sender.settings.containers):
                if record.value("run") == "SYNC":
                    for one in record.containers:
                        if one.get("state") == "running":
                            found.setdefault(
                                ("container", record.node.id, str(one["name"])), []
                            ).append(sender)
            for record in self._range(sender, "consoles", sender.settings.consoles):
                found.setdefault(("console", record.node.id, ""), []).append(sender)
        kept = dict(list(found.items())[:MOST])
        more = len(found) - MOST
        self._say(
            "most",
            f"not followed, beyond {MOST}: {more} of the containers and consoles"
            if more > 0
            else "",
        )
        return kept

    def _range(self, sender: Sender, what: str, text: str) -> list[Record]:
        if not text:
            return []
        try:
            names = expand(text, *self._store.names_and_groups())
            self._say(f"{sender.name} {what}", "")
        except LayercakeError as error:
            self._say(f"{sender.name} {what}", f"logs.{sender.name}.{what}: {error.message}")
            return []
        return [self._store.named(name) for name in names]

    def _say(self, about: str, text: str) -> None:
        """Says something once, as long as it is so."""
        if text and self._told.get(about) != text:
            log.warning("%s", text)
        self._told[about] = text

    async def _follow(self, key: Key) -> None:
        kind, node, container = key
        while (record := self._store.find(node)) is not None:
            with contextlib.suppress(
                LayercakeError, OSError, TimeoutError
            ):  # a node that is away says so elsewhere
                if kind == "console":
                    await self._console(key, record)
                else:
                    await self._container(key, record, container)
            await asyncio.sleep(AGAIN_S)
        self._pids.pop(key, None)

    async def _container(self, key: Key, record: Record, name: str) -> None:
        pieces = Pieces()
        found = next((one for one in record.containers if one["name"] == name), {})
        pid = found.get("pid") or 0
        started_s = found.get("started_s")
        new = started_s is not None and started_s < YOUNG_S and self._pids.get(key) != pid
        query = {"lines": str(EARLIER if new else 0), "follow": "1"}
        async with self._node_link.open(
            record, "GET", f"/v1/containers/{quote(name, safe='')}/log", query=query
        ) as answer:
            self._pids[key] = pid
            async for data in answer.content.iter_any():
                await self._tell_piece(key, name, record, pieces, data)

    async def _console(self, key: Key, record: Record) -> None:
        pieces = Pieces()
        attached = Attached(self._ask, self._store, record, WHO, False)
        await attached.attach(False)
        attached.to_end()
        try:
            while True:
                data, _ = await attached.follow()
                await self._tell_piece(key, "console", record, pieces, data)
        finally:
            await attached.detach()

    async def _tell_piece(
        self, key: Key, app: str, record: Record, pieces: Pieces, data: bytes
    ) -> None:
        """What was read becomes lines, as far as the budget goes."""
        about = "/".join(key)
        if self._budget.allows(about, data):
            if lost := self._budget.left_out(about):
                self._tell(
                    key, app, record, [f"{count_of(lost, 'line')} left out here: too many"], 4
                )
            self._tell(key, app, record, pieces.add(data))
        else:
            pieces.cut()
        await self._budget.pace(about, len(data))

    def _tell(
        self, key: Key, app: str, record: Record, lines: Iterable[str], severity: int = 6
    ) -> None:
        for text in lines:
            entry = Entry(
                time.time(),
                severity,
                text,
                app=app,
                host=record.name,
                fields={"node": record.name, "source": key[0]},
            )
            for sender in self._wanted.get(key, ()):
                sender.waiting.add(entry)


class Logs:
    """All of it, for a head that runs."""

    def __init__(
        self,
        settings: Mapping[str, LogSettings],
        store: Store,
        vault: Vault,
        node_link: NodeLink,
        ask: AskModule,
    ) -> None:
        self.senders = [Sender(name, one, store, vault) for name, one in settings.items()]
        self._handler = Own(self.senders)
        self._audit = AuditRecords(self.senders)
        self._followers = Followers(
            store,
            node_link,
            ask,
            [s for s in self.senders if s.settings.containers or s.settings.consoles],
        )

    async def run(self) -> None:
        """Begins, and follows what the senders ask for."""
        if self.senders:
            logging.getLogger().addHandler(self._handler)
            self._audit.start()
            for sender in self.senders:
                sender.start()
            await self._followers.run()

    async def stop(self) -> None:
        """Ends, after the last lines."""
        logging.getLogger().removeHandler(self._handler)
        self._audit.stop()
        await asyncio.gather(*(sender.stop() for sender in self.senders))
