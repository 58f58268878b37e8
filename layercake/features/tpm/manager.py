"""The TPMs of the nodes: who asks to join is challenged, what is shown is judged, recorded and
kept, and secrets are withheld from those who have shown nothing. What the exchange is stands in
minos/tpm/proof.py."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace

from layercake.base.clock import Clock
from layercake.base.text import printable
from layercake.features.tpm import events, judging
from layercake.features.tpm.evidence import certificate, credential, log, quote
from layercake.features.tpm.module import NOTHING, TpmPart, TpmSettings
from layercake.features.tpm.table import LAST, Known, Logs, Rows, Shown, write_tpm
from layercake.fleet.persistence.database import Database
from layercake.fleet.store import Event, Record, Store
from layercake.fleet.transaction import Transaction
from layercake.kraken.errors import InputError, Refused
from minos.tpm.proof import qualifying

QUOTED = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14)
"""The registers that are always asked for, for people to see; 10 to 13 change while a machine
runs."""
NONCE_BYTES = 32
GOOD_S = 120.0
"""How long a challenge and a pass are good, in seconds: an exchange takes less than one."""
_ACCEPT = "if that is right, `layercake tpm accept {name}`"


@dataclass(frozen=True, slots=True)
class Boot:
    """Who asks to join: the boot (its boot id), the boot set that it says it has booted, from where
    it asks, and what stands for the token of the boot."""

    id: str
    name: str
    address: str
    window: str


class Sent(NamedTuple):
    """What the head has sent for a boot: what stands for the token in it, which nobody else can
    name, the SHA-256 of GRUB's configuration, "" where the boot has none, and the boot set."""

    window: str = ""
    configuration: str = ""
    boot: str = ""


NOTHING_SENT = Sent()


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a node was asked. `until` is by the head's clock."""

    boot_id: str
    until: float
    nonce: bytes = field(repr=False)
    held: bytes = field(repr=False)
    key: ec.EllipticCurvePublicKey = field(repr=False)
    registers: tuple[int, ...]
    shown: Shown


@dataclass(frozen=True, slots=True)
class Pass:
    """What a node may join with, once."""

    boot_id: str
    until: float
    word: str = field(repr=False)
    quoted: bool


class Tpms:
    """`clock` never steps, `wall` is what people's clocks say. `ordered` gives the boot set that a
    node is to boot, `adopted` the endorsement key (its SHA-256) that its machine had when a person
    took it in, "" for none."""

    def __init__(
        self,
        store: Store,
        database: Database,
        settings: TpmSettings,
        clock: Clock,
        ordered: Callable[[Record], str],
        adopted: Callable[[Record], str] = lambda record: "",
    ) -> None:
        self._store = store
        self._rows = Rows(database, store)
        self._settings = settings
        self._clock = clock
        self._ordered = ordered
        self._adopted = adopted
        self._known: dict[str, Known] = {}
        self._gone: frozenset[str] = frozenset()
        self._writing = asyncio.Lock()
        self._challenges: dict[str, Challenge] = {}
        self._passes: dict[str, Pass] = {}
        self._sent: dict[str, Sent] = {}
        self.authorities: Sequence[x509.Certificate] = ()
        """Of the makers of TPMs."""

    def load(self) -> None:
        """Reads what was kept, and whose TPMs are taken. Raises InputError."""
        if self._settings.authorities:
            self.authorities = certificate.authorities(self._settings.authorities)
        for known in self._rows.all():
            if self._store.find(known.node) is None:
                self._gone |= {known.node}
            else:
                self._known[known.node] = known

    def note_event(self, event: Event) -> None:
        """Keeps what the head has sent for a boot."""
        if not event.data.get("window"):  # as nearly all
            return
        said = [event.data.get(name, "") for name in ("window", "configuration", "boot")]
        record = self._store.lookup(event.node)
        if record is not None and all(isinstance(value, str) for value in said):
            self._sent[record.node.id] = Sent(*said)

    # -- what is known

    def part(self, record: Record) -> TpmPart:
        """What the inventory asks of a node's TPM."""
        found = record.node.parts.get("tpm")
        return found if isinstance(found, TpmPart) else NOTHING

    def asks(self, record: Record) -> bool:
        """Whether a node is asked for its TPM when it joins."""
        return self.part(record).tpm != "none"

    def of(self, record: Record) -> Known:
        """What is known of a node's TPM."""
        return self._known.get(record.node.id) or Known(node=record.node.id)

    async def logs(self, record: Record) -> Logs:
        """The event logs of a node. Raises OperationFailed."""
        [logs] = await self._rows.logs(record.node.id)
        return logs

    def troubles(self, record: Record) -> list[str]:
        """What is to be said of a node's TPM, for people."""
        part = self.part(record)
        known = self.of(record)
        session = record.session
        if part.tpm == "none":
            return []
        found = list(known.troubles)
        if known.troubles and known.last is not None:
            found.append(_ACCEPT.format(name=record.name))
        elif not known.ek and not known.troubles:
            found.append("it has not shown its TPM yet: it does when it boots next")
        if part.secrets == "quoted" and session is not None and not session.quoted:
            found.append("it gets no secrets: the TPM has not shown what this boot is")
        return found

    def guard_secrets(self, record: Record, what: str) -> None:
        """Secrets of a node go to it where the inventory lets any boot have them, or to a boot that
        the TPM has vouched for. Raises Refused, and tells of it."""
        session = record.session
        if self.part(record).secrets == "any" or (session is not None and session.quoted):
            return
        self._store.event(
            record,
            events.WITHHELD,
            f"it asked for {what[:80]}, and its TPM has not shown what this boot is",
        )
        raise Refused(
            f"cannot hand out {what[:80]}: the inventory says `secrets: quoted`, and this boot was "
            "not quoted",
            hint=f"see `layercake tpm show {record.name}`",
        )

    def vouches(self, record: Record) -> bool:
        """Whether the boot of a node's session is one that its TPM has proven: that of a TPM, and
        with registers of what is booted, that were recorded before."""
        session = record.session
        return (
            session is not None
            and session.quoted
            and session.boot_id == self.of(record).proven
            and not judging.BY_BOOT.isdisjoint(self.part(record).tpm_registers)
        )

    # -- who wants to join

    def challenge(self, record: Record, boot: Boot, said: Mapping[str, Any]) -> dict[str, Any]:
        """What a node has to open and to quote, of the keys that it says its TPM has. Raises
        InputError."""
        public = _bytes(said.get("ek"), 1024)
        ak = _bytes(said.get("ak"), 1024)
        key = credential.endorsement_key(public)
        its = credential.attestation_key(ak)
        data = _bytes(said.get("certificate"), certificate.MOST_BYTES)
        found = certificate.vouched(data, key.key, self.authorities)
        shown = Shown(
            ek=hashlib.sha256(public).hexdigest(),
            ak=hashlib.sha256(ak).hexdigest(),
            maker=printable(str(said.get("maker")))[:8],
            issuer=found.issuer,
            certificate=hashlib.sha256(data).hexdigest() if found.issuer else "",
            untrusted=found.trouble if self.authorities else "",
        )
        held = secrets.token_bytes(32)
        nonce = secrets.token_bytes(NONCE_BYTES)
        blob, seed = credential.make(key, credential.name_of(ak), held)
        registers = tuple(sorted({*QUOTED, *self.part(record).tpm_registers}))
        self._challenges[record.node.id] = Challenge(
            boot.id, self._clock() + GOOD_S, nonce, held, its, registers, shown
        )
        words = {"credential": blob, "secret": seed, "nonce": nonce}
        return {
            **{word: base64.b64encode(value).decode() for word, value in words.items()},
            "registers": registers,
        }

    async def answered(self, record: Record, boot: Boot, said: Mapping[str, Any]) -> dict[str, Any]:
        """A node's quote, for the challenge that it has. Returns the pass for its join. Raises
        Refused, and OperationFailed if it cannot be written."""
        challenge = self._challenges.pop(record.node.id, None)
        if challenge is None or challenge.boot_id != boot.id or challenge.until < self._clock():
            raise Refused(
                "cannot take the quote: nothing was asked, or long ago",
                hint="the node asks to join again",
            )
        steps = log.read(said.get("log"))
        try:
            shown = self._checked(challenge, boot, said, steps)
        except (InputError, Refused) as error:
            return await self.without(record, boot, error.message)
        before = self.of(record)
        sent = self._sent.get(record.node.id, NOTHING_SENT)
        if sent.window != boot.window:
            sent = NOTHING_SENT
        verdict = judging.judge(
            self.part(record),
            before,
            shown,
            sent.boot or self._ordered(record),
            self._adopted(record),
            log.configuration_trouble(steps, sent.configuration),
        )
        [logs] = await self._rows.logs(record.node.id)
        lines = verdict.troubles + _differences(verdict, logs, steps, shown)
        logs[LAST] = steps
        proven = "" if lines or verdict.new else boot.id
        now = replace(verdict.known, last=shown, troubles=lines, proven=proven)
        await self._write(now, _logged(logs, before, verdict.known, shown.boot))
        if verdict.new:
            self._store.event(
                record, events.RECORDED, verdict.new, data={"ek": shown.ek, "boot": shown.boot}
            )
        self._report_troubles(record, lines, boot, known=not verdict.unknown)
        return self._pass(record, boot, quoted=not lines)

    def _checked(
        self, challenge: Challenge, boot: Boot, said: Mapping[str, Any], steps: Sequence[log.Step]
    ) -> Shown:
        """What the TPM has shown, once its quote was checked. Raises InputError and Refused."""
        values = _values(said.get("registers"))
        quoted = quote.checked(
            challenge.key,
            _bytes(said.get("quote"), 2048),
            _bytes(said.get("signature"), 1024),
            qualifying(challenge.nonce, challenge.held),
            challenge.registers,
            values,
        )
        registers = {number: value.hex() for number, value in values.items()}
        return replace(
            challenge.shown,
            registers=registers,
            boot=boot.name,
            window=boot.window,
            lasting={
                number: log.lasting(steps, number, registers[number])
                for number in judging.LASTING & registers.keys()
            },
            firmware=quoted.firmware,
            clock=quoted.clock,
            resets=quoted.resets,
            restarts=quoted.restarts,
            at=self._store.wall(),
        )

    async def without(self, record: Record, boot: Boot, why: str) -> dict[str, Any]:
        """A node that can show no TPM, and why. Returns its pass, where none is required. Raises
        Refused and OperationFailed."""
        lines = (f"it has shown no TPM: {printable(why)}",)
        known = self.of(record)
        if known.troubles != lines:
            await self._write(replace(known, troubles=lines), None)
        self._report_troubles(record, lines, boot)
        return self._pass(record, boot, quoted=False)

    def _report_troubles(
        self, record: Record, lines: tuple[str, ...], boot: Boot, *, known: bool = True
    ) -> None:
        """Tells of what is wrong. Raises Refused where the TPM is required."""
        if not lines:
            return
        text = "; ".join(lines)[:2000]
        refuses = self.part(record).tpm == "required"
        hint = "" if known else f" (hint: {_ACCEPT.format(name=record.name)})"
        kind = events.REFUSED if refuses else events.DIFFERS
        self._store.event(
            record,
            kind,
            (f"a join from {boot.address} was refused: " if refuses else "") + text + hint,
            data={"address": boot.address},
        )
        if refuses:
            raise Refused(
                f"cannot join {record.name}: its TPM is required, and was not as recorded",
                hint=f"see `layercake tpm show {record.name}`",
            )

    def _pass(self, record: Record, boot: Boot, *, quoted: bool) -> dict[str, Any]:
        word = secrets.token_urlsafe(24)
        self._passes[record.node.id] = Pass(boot.id, self._clock() + GOOD_S, word, quoted)
        return {"pass": word}

    def passes(self, record: Record, boot_id: str, word: object) -> bool:
        """Whether somebody may join by what it has shown, and has the pass for it."""
        found = self._passes.get(record.node.id)
        return (
            found is not None
            and isinstance(word, str)
            and hmac.compare_digest(found.word.encode(), word.encode())
            and found.boot_id == boot_id
            and found.until >= self._clock()
        )

    def spend(self, record: Record, boot_id: str) -> bool:
        """The pass of a boot is used. Says whether what was booted was quoted, and is as recorded.
        Raises Refused where there has to be a pass, and is none for this boot."""
        found = self._passes.pop(record.node.id, None)
        if not self.asks(record):
            return False
        if found is None or found.boot_id != boot_id or found.until < self._clock():
            raise Refused(
                f"cannot join {record.name}: its TPM was not shown for this join",
                hint="the node asks to join again",
            )
        return found.quoted

    # -- what people ask for

    async def accept(
        self, transaction: Transaction, records: Sequence[Record]
    ) -> list[tuple[Record, Shown]]:
        """What nodes have shown last is right. Returns those that have shown something."""
        done = []
        for record, known, logs in await self._shown_last(records):
            if known.last is None:
                continue
            same = known if known.ek == known.last.ek else Known(node=known.node, last=known.last)
            now = replace(
                judging.recorded(same, known.last, self.part(record).tpm_registers), troubles=()
            )
            boot = known.last.boot
            kept = {
                name: steps for name, steps in logs.items() if name == LAST or name in now.expected
            }
            kept |= {name: logs.get(LAST, ()) for name in now.expected if name in ("", boot)}
            transaction.write(partial(write_tpm, now, kept))
            transaction.after(self._remember, now)
            done.append((record, known.last))
        return done

    async def _shown_last(self, records: Sequence[Record]) -> list[tuple[Record, Known, Logs]]:
        """What nodes have shown, with the event logs; of one that shows its TPM meanwhile, the
        new."""
        found: dict[str, tuple[Record, Known, Logs]] = {}

        def is_new(record: Record) -> bool:
            had = found.get(record.node.id)
            return had is None or had[1] != self.of(record)

        while new := [record for record in records if is_new(record)]:
            known = [self.of(one) for one in new]
            logs = await self._rows.logs(*(one.node.id for one in new))
            for record, shown, steps in zip(new, known, logs, strict=True):
                found[record.node.id] = record, shown, steps
        return list(found.values())

    def _remember(self, known: Known) -> None:
        self._known[known.node] = known

    async def cleared(self, record: Record) -> None:
        """A node's TPM was cleared: it counts its resets from 0 (Part 3, TPM2_Clear). Raises
        OperationFailed."""
        if record.node.id in self._known:
            await self._write(replace(self.of(record), resets=0), None)

    async def forget(self, record: Record) -> None:
        """Nothing is recorded of a node's TPM any more. Raises OperationFailed."""
        await self._rows.remove(record.node.id)
        for kept in (self._known, self._challenges, self._passes):
            kept.pop(record.node.id, None)

    def removed(self, record: Record) -> None:
        """A node is gone from the inventory. Its row goes with the next one that is written."""
        for kept in (self._challenges, self._passes, self._sent):
            kept.pop(record.node.id, None)
        if self._known.pop(record.node.id, None) is not None:
            self._gone |= {record.node.id}

    async def _write(self, known: Known, logs: Logs | None) -> None:
        async with self._writing:  # who is added again is written after his old row is gone
            gone = self._gone - {known.node}
            await self._rows.write(known, logs, gone)
            self._gone -= {*gone, known.node}
            self._remember(known)


def _differences(
    verdict: judging.Verdict, logs: Logs, steps: Sequence[log.Step], shown: Shown
) -> tuple[str, ...]:
    """How the registers that differ do, by the event logs, for people."""
    return tuple(
        f"register {number}: "
        + log.difference(
            logs.get(judging.place(number, shown.boot), ()), steps, number, shown.registers[number]
        )
        for number in verdict.registers
    )


def _logged(logs: Logs, before: Known, now: Known, boot: str) -> Logs:
    """The logs to keep: that of now also for the registers that were recorded by it."""
    new = [
        name
        for name, values in now.expected.items()
        if name in ("", boot) and values != before.expected.get(name)
    ]
    return {
        name: steps for name, steps in logs.items() if name == LAST or name in now.expected
    } | dict.fromkeys(new, logs[LAST])


def _bytes(said: object, most: int) -> bytes:
    """Base64, of so many bytes at most. Raises InputError."""
    try:
        if not isinstance(said, str) or len(said) > most * 4 // 3 + 4:
            raise ValueError("it is not text, or too long")
        return base64.b64decode(said, validate=True)
    except ValueError as error:
        raise InputError(f"cannot take what the node says of its TPM: {error}") from None


def _values(said: object) -> dict[int, bytes]:
    """Values of registers. Raises InputError."""
    try:
        if (
            not isinstance(said, dict)
            or len(said) > 24
            or any(len(str(one)) > 128 for one in (*said, *said.values()))
        ):
            raise ValueError("they are not as agreed")
        return {int(number): bytes.fromhex(value) for number, value in said.items()}
    except (TypeError, ValueError) as error:
        raise InputError(f"cannot take the values of the registers: {error}") from None
