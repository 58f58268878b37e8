"""What the checks are given: the settings, the nodes and their BMCs, from the head if it runs, else
from its data directory or an inventory that is not applied yet."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from layercake.base.secrets import Vault
from layercake.check.machine import Machine
from layercake.features.nodes.views import parts_view
from layercake.fleet.persistence import schema
from layercake.fleet.table import Table
from layercake.head import settings as head_settings
from layercake.head.loading import load_modules
from layercake.head.settings import Settings
from layercake.inventory.load import load
from layercake.inventory.schema import Node
from layercake.kraken.errors import InputError, OperationFailed
from layercake.moduleapi.network import Subnets
from layercake.moduleapi.service import FakeLink
from layercake.modules.notifier import NotifiedNode
from powerman.module import MODULE as POWER
from powerman.service import PowerService

LOOK = "power.look"
VISIT = "boot.visit"
LOOK_S = 15.0
CALL_S = 60.0
SLOWEST_ANSWER_S = 6.0
Found = TypeVar("Found")


class Api(Protocol):
    """The API of a head that runs (layercake.client.http.Client). Both raise
    LayercakeError."""

    def get(self, path: str, *, timeout: float = CALL_S) -> Any:
        """The JSON at a path."""

    def post(self, path: str, body: Mapping[str, Any], *, timeout: float = CALL_S) -> Any:
        """Posts JSON, returns JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedNode:
    """A node. `bmc` is its BMC's address, "" without one; `power` what is known of it; `cards` its
    network cards as it last said (layercake.fleet.store.NetworkCard as plain facts)."""

    name: str
    macs: tuple[str, ...]
    ip: str
    firmware: str
    bmc: str = ""
    power: str = "UNKNOWN"
    cards: tuple[Mapping[str, Any], ...] = ()


class SharedResult(Generic[Found]):
    """A look that several checks share; who comes while it is under way waits for it."""

    def __init__(self, look: Callable[[], Found]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._found: list[Found] = []

    def __call__(self) -> Found:
        with self._lock:
            if not self._found:
                self._found.append(self._look())
            return self._found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """`api` is None when no head runs. `listen_s`: for how many seconds answers on the nodes'
    network are waited for. `look` gives what each BMC says
    (powerman.inspect.inspection.InspectedBmc as plain facts)."""

    data_dir: Path
    settings: Settings
    nodes: tuple[CheckedNode, ...] = ()
    look: Callable[[], list[dict[str, Any]]] = field(default=list)
    api: Api | None = None
    status: Mapping[str, Any] | None = None
    listen_s: float = SLOWEST_ANSWER_S
    machine: Machine = field(default_factory=Machine)

    def of(self, section: str) -> Any:
        """The settings of a module, by its section of config.yaml."""
        return self.settings.sections[section]

    def sides(self) -> list[Site]:
        """The site as it is seen in each network that the head is in: with that network as the
        head's only one, and with the nodes that are in it. Those that are in none of them are with
        the first."""
        heads = self.settings.own_networks
        if len(heads) == 1:
            return [self]
        subnets = Subnets({str(number): str(own.network) for number, own in enumerate(heads)})
        at = {node.name: int(subnets.of(node.ip) or 0) if node.ip else 0 for node in self.nodes}
        return [
            replace(
                self,
                nodes=tuple(node for node in self.nodes if at[node.name] == number),
                settings=msgspec.structs.replace(
                    self.settings,
                    interface=own.interface,
                    address=own.address,
                    prefix=own.prefix,
                    more_networks={},
                ),
            )
            for number, own in enumerate(heads)
        ]


def call_module(api: Api, call: str, params: Mapping[str, Any]) -> Any:
    """What a module of the head that runs answers. Raises LayercakeError."""
    (answer,) = api.post(
        f"/v1/calls/{call}", {"range": "", "params": dict(params)}, timeout=CALL_S
    )["answers"]
    if not answer["ok"]:
        raise OperationFailed(str(answer["error"]), hint=str(answer["hint"]))
    return answer["answer"]


def socket_of(data_dir: Path) -> str:
    """The socket of a head over this data directory, which need not run. Raises InputError."""
    return head_settings.load(data_dir).socket


def survey(
    data_dir: Path,
    api: Api | None,
    *,
    inventory: Path | None = None,
    listen_s: float = SLOWEST_ANSWER_S,
    machine: Machine | None = None,
) -> Site:
    """The site of a data directory. With an `inventory` the nodes and BMCs are those of that file.
    Raises InputError for settings or an inventory that cannot be used, and what the head
    answers."""
    settings = head_settings.load(data_dir)
    table, _ = load_modules(data_dir, settings)
    settings = msgspec.structs.replace(
        settings, sections={m.section: settings.of(m) for m in table.modules.values() if m.section}
    )
    status = None if api is None else api.get("/v1/status", timeout=CALL_S)
    common: dict[str, Any] = {
        "data_dir": data_dir,
        "settings": settings,
        "api": api,
        "status": status,
        "listen_s": listen_s,
        "machine": machine or Machine(),
    }
    if api is not None and inventory is None:
        nodes = tuple(_of_view(view) for view in api.get("/v1/nodes", timeout=CALL_S)["nodes"])
        return Site(
            nodes=nodes,
            look=SharedResult(lambda: call_module(api, LOOK, {"limit_s": LOOK_S})),
            **common,
        )
    if inventory is not None:
        records = list(load(inventory, parts=table.parts).nodes.values())
    else:
        records = _stored(data_dir / "layercake.db", table)
    vault = Vault(settings.secrets_in(data_dir), os.environ)
    return Site(
        nodes=tuple(_of_record(node, table) for node in records),
        **common,
        look=SharedResult(lambda: asyncio.run(_read_bmcs(records, vault, settings))),
    )


def _of_view(view: Mapping[str, Any]) -> CheckedNode:
    return CheckedNode(
        name=view["name"],
        macs=tuple(view["macs"]),
        ip=view["ip"],
        firmware=view["firmware"],
        bmc=str((view.get("bmc") or {}).get("address", "")),
        power=view["state"].get("power", "UNKNOWN"),
        cards=tuple(view.get("cards") or ()),
    )


def _of_record(node: Node, table: Table) -> CheckedNode:
    return CheckedNode(
        name=node.name,
        macs=node.macs,
        ip=node.ip,
        firmware=node.firmware,
        bmc=str((parts_view(node, table).get("bmc") or {}).get("address", "")),
    )


def _stored(database: Path, table: Table) -> list[Node]:
    """The nodes in the database of a head that does not run. Raises InputError for one that cannot
    be read."""
    if not database.exists():
        return []
    content = schema.copy(database)
    schema.check_content(content, database)
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(content)
        return [
            table.node(json.loads(data)["node"])
            for (data,) in db.execute("SELECT data FROM nodes ORDER BY row")
        ]


async def _read_bmcs(nodes: list[Node], vault: Vault, settings: Settings) -> list[dict[str, Any]]:
    """Looks at the BMCs by the power module, in this process: the head has none that runs."""
    service = PowerService(polls=False)
    unread: list[dict[str, Any]] = []
    record = POWER.record
    assert record is not None  # noqa: S101 (it is told of nodes)
    await service.start(FakeLink(), settings.site(Path()), settings.sections[POWER.section])
    try:
        for node in nodes:
            try:
                facts = NotifiedNode(
                    node.id, node.name, node.macs, node.ip, node.arch, node.firmware, ""
                )
                bmc = record(
                    facts,
                    node.parts.get(POWER.name),
                    lambda ref: "" if ref is None else vault.open(ref).reveal(),
                )
            except InputError as problem:
                unread.append(
                    {
                        "node": node.id,
                        "name": node.name,
                        "where": "",
                        "result": "no-secret",
                        "why": problem.message,
                    }
                )
                continue
            await service.node_changed(node.id, bmc)
        rows: list[dict[str, Any]] = msgspec.to_builtins(await service.inspect_bmcs(LOOK_S))
        return unread + rows
    finally:
        await service.stop()
