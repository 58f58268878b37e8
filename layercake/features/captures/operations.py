"""Captures: what was said of a node's last boot, and its packets from now on, as an archive."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from layercake.base.clock import show_time
from layercake.features.captures.masking import masked, masked_document
from layercake.features.captures.sniffer import READY
from layercake.features.consoles.operations import Consoles
from layercake.features.events.views import event_view
from layercake.features.nodes.explain import Explainer, explain_text
from layercake.fleet.persistence.history import History
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import LayercakeError, OperationFailed, Refused
from layercake.modules.calls import AskModule

MOST_PACKETS = 8 << 20
"""Bytes of packets in an archive."""
MOST_SECONDS = 600
MOST_TEXT = 2 << 20
"""Bytes of each of the other files: the newest."""
AT_ONCE = 4
"""Captures at a time: each may hold all of its bytes in memory."""
SPARE_S = 10.0
"""Seconds that the process with the packets has to start, and to end."""
CONSOLE_LINES = 5000
STEPS = "boot.steps"
_SNIFFER = "layercake.features.captures.sniffer"
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL")


@dataclass(slots=True)
class _Archive:
    """The files of an archive, why others are not in it, and when the node's last boot began, in
    seconds since the epoch."""

    files: dict[str, bytes] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    began: float = 0.0

    def text(self, name: str, text: str) -> None:
        """Puts a text in, without secrets; of a long one its end."""
        self.files[name] = masked(text).encode(errors="replace")[-MOST_TEXT:]

    def document(self, name: str, value: Any) -> None:
        """The same for a document, as JSON."""
        plain = masked_document(msgspec.to_builtins(value))
        self.files[name] = json.dumps(plain, indent=1).encode()


class Captures:
    """Makes captures. `argv` is the program that captures packets."""

    def __init__(
        self,
        store: Store,
        history: History,
        ask: AskModule,
        consoles: Consoles,
        explainer: Explainer,
        argv: tuple[str, ...] = (sys.executable, "-m", _SNIFFER),
    ) -> None:
        self._store = store
        self._history = history
        self._ask = ask
        self._consoles = consoles
        self._explainer = explainer
        self._argv = argv
        self._under_way = 0

    async def capture(self, name: str, seconds: int, by: str) -> bytes:
        """The archive of a node, a tar file that is packed by gzip: `seconds` of packets, and what
        is known of its last boot at the end of that. What cannot be had is named in README. Raises
        NotFound, and Refused while too many are made."""
        record = self._store.named(name)
        if self._under_way >= AT_ONCE:
            raise Refused(
                f"cannot capture {name}: {AT_ONCE} captures are under way",
                hint="try again when one is over",
            )
        self._under_way += 1
        try:
            archive = _Archive()
            await self._add(archive, "packets.pcap", self._packets(record, seconds, archive))
            await self._add(archive, "boot-steps.json", self._steps(record, archive))
            await self._add(archive, "console.txt", self._console(record, archive))
            await self._add(archive, "events.jsonl", self._events(record, archive))
            await self._add(archive, "explain.txt", self._explain(record, archive))
            archive.document("inventory.json", record.node.to_record())
            now = self._store.wall()
            archive.text("README", _readme(record.name, seconds, by, show_time(now), archive))
            return await asyncio.to_thread(_packed, record.name, archive.files, now)
        finally:
            self._under_way -= 1

    @staticmethod
    async def _add(archive: _Archive, name: str, work: Awaitable[None]) -> None:
        """Has one file made; each fails alone."""
        try:
            await work
        except LayercakeError as error:
            archive.missing.append(f"{name}: {error.message}")

    async def _packets(self, record: Record, seconds: int, archive: _Archive) -> None:
        order = {
            "macs": list(record.node.macs),
            "addresses": [record.node.ip] if record.node.ip else [],
            "seconds": seconds,
            "bytes": MOST_PACKETS,
        }
        process = await asyncio.create_subprocess_exec(
            *self._argv,
            json.dumps(order),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={key: os.environ[key] for key in _ENVIRONMENT if key in os.environ},
        )
        try:
            async with asyncio.timeout(seconds + SPARE_S):
                packets, said = await process.communicate()
        except TimeoutError:
            raise OperationFailed("the process that captures them did not end") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode or READY not in said:
            last = said.decode(errors="replace").strip().rpartition("\n")[2][:200]
            raise OperationFailed(f"this head cannot capture packets: {last or 'it was killed'}")
        archive.files["packets.pcap"] = packets[:MOST_PACKETS]

    async def _steps(self, record: Record, archive: _Archive) -> None:
        found = await self._ask(STEPS, {"node": record.node.id})
        opened = found.get("opened_s_ago")
        archive.began = 0.0 if opened is None else self._store.wall() - float(opened)
        archive.document("boot-steps.json", found)

    async def _console(self, record: Record, archive: _Archive) -> None:
        lines = await self._consoles.log(record.name, CONSOLE_LINES)
        boot = [one for one in lines if one["at"] >= archive.began]
        texts = [f"{show_time(one['at'])} {one['text']}\n" for one in boot]
        archive.text("console.txt", "".join(texts))

    async def _events(self, record: Record, archive: _Archive) -> None:
        events = [event_view(event) for event in await self._history.of(self._store, record.name)]
        lines = [json.dumps(masked_document(event)) for event in events]
        archive.files["events.jsonl"] = "".join(f"{line}\n" for line in lines).encode()

    async def _explain(self, record: Record, archive: _Archive) -> None:
        told = await self._history.of(self._store, record.name)
        found = await self._explainer.explain(record, told, brief=False)
        archive.text("explain.txt", explain_text(found) + "\n")


def _readme(name: str, seconds: int, by: str, at: str, archive: _Archive) -> str:
    about = {
        "packets.pcap": f"{seconds} s of packets of the node, as this head saw them: DHCP, DNS and "
        "TFTP's requests whole, of HTTP the first lines, of the rest the headers",
        "boot-steps.json": "how far its last boot came, as the boot service saw it",
        "console.txt": "what its console said since that boot began",
        "events.jsonl": "what happened to it last, oldest first",
        "explain.txt": "how it is, and why",
        "inventory.json": "its entry in the inventory in force, defaults and groups included",
    }
    there = [f"{file}: {what}" for file, what in about.items() if file in archive.files]
    missing = ["", "Not in it:", *archive.missing] if archive.missing else []
    head = f"{name}, captured at {at} for {by}. Values of tokens, passwords and the like are ***."
    return "\n".join([head, "", *there, *missing, ""])


def _packed(name: str, files: Mapping[str, bytes], at: float) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for file, data in files.items():
            entry = tarfile.TarInfo(f"{name}/{file}")
            entry.size = len(data)
            entry.mode = 0o600
            entry.mtime = int(at)
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
