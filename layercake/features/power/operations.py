"""Power: what the BMCs say, a power cycle, and BMCs that are set up from inside. On and off are
states that are wanted of nodes (operations/nodes.py)."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

from layercake.agents.client import NodeLink, read_answer
from layercake.agents.orders import PowerOrders
from layercake.api.caller import said_by
from layercake.base.clock import Clock
from layercake.base.text import parse_json
from layercake.features.calls.operations import Calls
from layercake.features.guard.guard import Guard
from layercake.features.nodes.views import parts_view
from layercake.features.power.views import sensors_view
from layercake.fleet import events
from layercake.fleet.desired import DesiredState, refuse_busy
from layercake.fleet.guard_state import Order
from layercake.fleet.networks import SiteNetworks
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.kraken.converge import Cleared
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed, Refused
from layercake.moduleapi.event_loop.slices import in_slices
from layercake.modules.calls import AskModule

READ_AT_ONCE = 16
"""Nodes whose sensors are read at the same time."""
READ_S = 60.0
"""Seconds that one of them may take."""
SENSORS = "power.sensors"
STATUS = "power.status"
REFRESH = "power.refresh"
LOGIN = "power.login"
SCAN = "power.scan"
CAP = "power.cap"
SET_CAP = "power.set-cap"
CAP_S = 90.0
ANSWERS_S = 60.0
"""Seconds that a BMC that was set up may be silent."""
PAUSE_S = 2.0
"""Seconds between two times that it is asked."""
AT_ONCE = 16
"""BMCs that are set up at once."""
MOST_ANSWER = 65536
"""Bytes of a node's answer that are read."""


class Power:
    """Operations on nodes' power."""

    def __init__(
        self,
        store: Store,
        desire: DesiredState,
        guard: Guard,
        table: Table,
        clock: Clock,
        ask: AskModule,
        node_link: NodeLink,
        networks: SiteNetworks,
        orders: PowerOrders,
        calls: Calls,
    ) -> None:
        self._store = store
        self._desire = desire
        self._guard = guard
        self._table = table
        self._clock = clock
        self._ask = ask
        self._node_link = node_link
        self._networks = networks
        self._orders = orders
        self._calls = calls

    async def cycle(self, text: str, force: bool, by: str = "") -> list[str]:
        """Power-cycles nodes: the engine stops their images, switches them off, and boots them
        anew. Forced, it stops nothing first."""
        async with self._desire.transaction() as transaction:
            records = self._store.select(text)
            self._guard.refuse_frozen(records, "cycle")
            off = [r.name for r in records if r.node.state == "off"]
            if off:
                raise Refused(
                    f"cannot cycle {', '.join(off[:10])}: wanted off",
                    hint="use `layercake power on RANGE`",
                )
            who = said_by(by)
            asked = f"{who} asked for a power cycle" + (", by force" if force else "")
            async for record in in_slices(records):
                transaction.event(record, events.POWER_CYCLE, asked)
                transaction.post(record, Cleared(asked))
                if record.value("power") != "OFF":
                    self._orders.give(
                        transaction, record, Order("cycle", force=force, by=who, at=self._clock())
                    )
            refuse_busy(records, force)  # last: one may have become BUSY meanwhile
        return [r.name for r in records]

    async def status(self, text: str) -> list[dict[str, Any]]:
        """What the BMCs say now; one that does not answer has an error in its row."""
        return [self._row(answer) for answer in await self._calls.call(STATUS, text, {})]

    async def sensors(self, text: str) -> list[dict[str, Any]]:
        """What the sensors of nodes say, a row for each (views/power.py): so many at a time as BMCs
        bear. Raises InputError."""
        if not text:
            raise InputError(
                "cannot read sensors: of which nodes?", hint="name them; @all is every node"
            )
        turns = asyncio.Semaphore(READ_AT_ONCE)

        async def one(record: Record) -> dict[str, Any]:
            async with turns:
                try:
                    said = await self._ask(SENSORS, {"node": record.node.id}, timeout=READ_S)
                    return {"node": record.name, "error": "", **sensors_view(said)}
                except LayercakeError as error:
                    return {"node": record.name, "error": error.message, **sensors_view(())}

        return list(await asyncio.gather(*(one(record) for record in self._store.select(text))))

    # -- what machines may draw

    async def caps(self, text: str) -> list[dict[str, Any]]:
        """How many watts nodes may draw by their BMCs, None for as many as they like: a row for
        each."""
        return [_cap_row(answer) for answer in await self._calls.call(CAP, text, {})]

    async def cap(self, text: str, watts: int | None, by: str = "") -> list[dict[str, Any]]:
        """Has the BMCs of nodes cap what they draw at so many watts, or at none: a row for each.
        Raises InputError, Refused."""
        if not text.strip():
            raise InputError("cannot cap the power: of which nodes?", hint="name them")
        records = self._store.select(text)
        turns = asyncio.Semaphore(AT_ONCE)
        self._guard.refuse_frozen(records, "cap")
        told = "caps its draw no more" if watts is None else f"caps its draw at {watts} W"

        async def one(record: Record) -> dict[str, Any]:
            async with turns:
                try:
                    found = await self._ask(
                        SET_CAP, {"node": record.node.id, "watts": watts}, timeout=CAP_S
                    )
                except LayercakeError as error:
                    return {"node": record.name, "watts": None, "error": error.message}
                self._store.event(record, events.POWER_CAPPED, f"the BMC {told}, by {said_by(by)}")
                return {"node": record.name, "watts": found["watts"], "error": ""}

        return list(await asyncio.gather(*map(one, records)))

    def _row(self, answer: dict[str, Any]) -> dict[str, Any]:
        known = parts_view(self._store.named(answer["node"]).node, self._table).get("bmc") or {}
        said = answer["answer"] or {}
        error = f"{answer['error']} (hint: {answer['hint']})" if answer["hint"] else answer["error"]
        return {
            "node": answer["node"],
            "driver": known.get("driver"),
            "address": known.get("address"),
            "power": said.get("power", "UNKNOWN"),
            "error": error or None,
        }

    # -- BMCs that are set up from inside

    async def set_up(
        self, text: str, apply: bool, gateway: str, prefix: int, by: str = ""
    ) -> list[dict[str, Any]]:
        """Has the BMCs of nodes be as the inventory says, by the agents inside, or says in what
        they are not: a row for each. `gateway` and `prefix` are those of their network, "" and 0 if
        the inventory has it, or if they stay. Raises InputError."""
        if not text.strip():
            raise InputError("cannot set up BMCs: of which nodes?", hint="name them")
        if gateway:
            _address(gateway)
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(record: Record) -> dict[str, Any]:
            row: dict[str, Any] = {
                "node": record.name,
                "address": "",
                "now": "",
                "lines": [],
                "done": False,
                "error": "",
            }
            async with turns:
                try:
                    return row | await self._set_up(record, apply, gateway, prefix, by)
                except LayercakeError as error:
                    return row | {
                        "error": f"{error.message}"
                        + (f" (hint: {error.hint})" if error.hint else "")
                    }

        records = self._store.select(text)
        if apply:
            self._guard.refuse_frozen(records, "set up the BMC of")
        return list(await asyncio.gather(*map(one, records)))

    async def _set_up(
        self, record: Record, apply: bool, gateway: str, prefix: int, by: str
    ) -> dict[str, Any]:
        login = await self._ask(LOGIN, {"node": record.node.id})
        wanted = {"user": login["username"], **self._place(login["address"], gateway, prefix)}
        said = await self._ask_inside(
            record, wanted
        )  # a look needs no password: the node gets none
        own = str(said["found"].get("address", ""))[:40]
        row = {
            "address": wanted["address"] or "by its name",
            "now": own,
            "lines": [str(line)[:200] for line in said["lines"][:20]],
        }
        if (
            wanted["address"]
            and not wanted["mask"]
            and not _near(wanted["address"], own, str(said["found"].get("mask", "")))
        ):
            raise InputError(
                f"cannot set up the BMC of {record.name}: {wanted['address']} is in no network of "
                "the inventory",
                hint="say its --prefix and --gateway, or add the network of the BMCs to `networks`",
            )
        if wanted["address"] not in ("", own) and await self._ask(
            SCAN, {"addresses": [wanted["address"]]}
        ):
            raise Refused(
                f"cannot set up the BMC of {record.name}: at {wanted['address']} another one "
                "answers, its own is at "
                f"{own or 'no address'}",
                hint="look whose address that is: two BMCs with one address are lost both",
            )
        row["lines"] = row["lines"] or await self._login_trouble(record, wanted["user"])
        if not apply or not row["lines"]:
            return row
        await self._ask_inside(record, {**wanted, "password": login["password"], "apply": True})
        self._store.event(
            record, events.POWER_SET_UP, f"by {said_by(by)}: {'; '.join(row['lines'])}"
        )
        await self._answers(record)
        return row | {"done": True}

    def _place(self, address: str, gateway: str, prefix: int) -> dict[str, str]:
        """Address, mask and gateway of a BMC: as asked for, or by the network of the inventory that
        it is in."""
        if not address:
            return {"address": "", "mask": "", "gateway": ""}
        own = _address(address)
        for network in self._networks.by_name.values():
            subnet = ipaddress.ip_network(network.subnet)
            if not prefix and own in subnet:
                prefix = subnet.prefixlen
                gateway = gateway or network.gateway or ""
        mask = str(ipaddress.IPv4Network((0, prefix)).netmask) if prefix else ""
        return {"address": address, "mask": mask, "gateway": gateway}

    async def _ask_inside(self, record: Record, body: dict[str, Any]) -> dict[str, Any]:
        async with self._node_link.open(record, "POST", "/v1/bmc", body=body) as answer:
            data = await read_answer(record, answer, MOST_ANSWER)
        try:
            said = parse_json(data)
            if isinstance(said["found"], dict) and isinstance(said["lines"], list):
                return dict(said)
        except (ValueError, KeyError, TypeError):
            pass
        raise OperationFailed(
            f"cannot set up the BMC of {record.name}: what its agent says makes no sense"
        )

    async def _login_trouble(self, record: Record, user: str) -> list[str]:
        """What is to be done where the head cannot log in at a BMC by what the inventory says."""
        try:
            await self._ask(REFRESH, {"node": record.node.id})
        except LayercakeError as error:
            return [f"user {user!r} gets the password: {error.message}"[:200]]
        return []

    async def _answers(self, record: Record) -> None:
        """Waits until a BMC answers as the inventory says; what it answers is told to the engine.
        Raises the last error."""
        until = self._clock() + ANSWERS_S
        while True:
            try:
                await self._ask(REFRESH, {"node": record.node.id})
                return
            except LayercakeError as error:
                if self._clock() > until:
                    raise OperationFailed(
                        f"the BMC of {record.name} is set up, and does not answer the head: "
                        f"{error.message}",
                        hint=error.hint,
                    ) from None
            await asyncio.sleep(PAUSE_S)


def _address(text: str) -> ipaddress.IPv4Address:
    """Raises InputError for what is no IPv4 address: those of IPv6 are not set from inside."""
    try:
        return ipaddress.IPv4Address(text)
    except ValueError:
        raise InputError(
            f"cannot set up a BMC at {text[:64]!r}: that is no IPv4 address",
            hint="bmc.address, --gateway",
        ) from None


def _near(address: str, own: str, mask: str) -> bool:
    """Whether an address is in the network that the BMC is in already."""
    try:
        return bool(mask) and ipaddress.IPv4Address(address) in ipaddress.IPv4Network(
            f"{own}/{mask}", strict=False
        )
    except ValueError:
        return False


def _cap_row(answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": answer["node"],
        "watts": answer["answer"]["watts"] if answer["ok"] else None,
        "error": answer["error"],
    }
