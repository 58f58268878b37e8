"""What people can do: each operation checks everything first, changes the desired state, and records who asked for what."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from imageapi.store.store import Image
from layercake.head.head import Head
from layercake.head.operations import rolls as asking
from layercake.head.rolls.facts import Roll
from layercake.head.state.desire import check_set, want
from layercake.head.state.store import Record, WantedImage
from layercake.inventory.diff import diff
from layercake.inventory.load import load
from layercake.inventory.ranges import expand
from layercake.inventory.schema import Inventory, Node, groups_of
from layercake.kraken.converge import Cleared, Discovered
from layercake.kraken.errors import InputError, LayercakeError, Refused


class Operations:
    """The operations over a Head. Those that change desired state return when the change is on disk and on its way."""

    def __init__(self, head: Head) -> None:
        self.head = self._head = head
        self._store = head.store

    # -- inventory

    def select(self, text: str) -> list[Record]:
        """The records that a node range names. Raises InputError for an unknown name or an empty range."""
        nodes = {r.name: r.node for r in self._store}
        names = expand(text, list(nodes), groups_of(nodes))
        if not names:
            raise InputError(f"cannot use range {text!r}: it names no node")
        return [self._store.named(name) for name in names]

    def parse(self, text: str, file: str) -> Inventory:
        """Reads an inventory against the images in the store. Raises InventoryErrors with every mistake in it."""
        found = load(text, file, known_images={i.name for i in self._head.images.list()})
        sets: dict[tuple[str, ...], str] = {node.images: node.name for node in found.nodes.values()}
        for names, example in sets.items():
            try:
                check_set(self._wanted(name) for name in names)
            except InputError as error:
                raise InputError(f"cannot use {file}: the images of {example}: {error.message}", hint=error.hint) from None
        return found

    def plan(self, text: str, file: str) -> dict[str, Any]:
        """What applying an inventory would do; changes nothing. The digest names this text over the present state."""
        new = self.parse(text, file)
        changes = diff({r.name: r.node for r in self._store}, new.nodes)
        plans = [self._plan_node(new.nodes[c.node]) for c in changes if c.node in new.nodes]
        return {
            "changes": [c.to_record() for c in changes], "plans": plans, "digest": self._digest(text),
            "warnings": [w.to_record() for w in new.warnings],
        }

    def _digest(self, text: str) -> str:
        return hashlib.blake2b(f"{self._store.revision}\0{text}".encode(), digest_size=16).hexdigest()

    def _plan_node(self, node: Node) -> dict[str, Any]:
        planner = self._head.planner_for(node)
        known = self._store.find(node.id)
        layout = planner.layout
        wants = {"power": "OFF"} if node.state == "off" else {
            "power": "ON", "run": "SYNC", "image": "ACTIVE" if node.images else "IDLE"
        }
        chain = planner.chain(known.machine.state if known else 0, layout.goal(wants))
        names = [m.name for m in chain or ()]
        if known is not None and chain == () and tuple(i.name for i in known.wanted) != node.images:
            names = ["image-update"]
        return {"node": node.name, "chain": names, "to": wants, "blocked": None if chain is not None else "no way there now"}

    async def apply(self, text: str, file: str, digest: str | None, allow_remove: bool) -> dict[str, Any]:
        """Makes an inventory the desired state. Raises Refused if it was planned over another state, or removes nodes unasked."""
        new = self.parse(text, file)
        if digest is not None and digest != self._digest(text):
            raise Refused("cannot apply the inventory: the state has changed since it was planned", hint="plan it again")
        changes = diff({r.name: r.node for r in self._store}, new.nodes)
        removed = [c.node for c in changes if c.node not in new.nodes]
        if removed and not allow_remove:
            raise Refused(f"cannot apply the inventory: it would remove {', '.join(removed[:10])}",
                          hint="say --allow-remove if that is meant")
        moved = [c.node for c in changes if c.node in new.nodes and "images" in c.fields]
        self._head.rolls.refuse([r for r in self._store if r.name in set(moved)], "change the images of")
        for name in removed:
            self._head.forget(self._store.named(name))
            self._store.event(None, "inventory.removed", f"{name} was removed from the inventory")
        for change in changes:
            if change.node in new.nodes:
                self._take(new.nodes[change.node], sorted(change.fields))
        await self._settle()
        return {"revision": self._store.revision, "changed": [c.node for c in changes]}

    def _take(self, node: Node, fields: Iterable[str]) -> None:
        record = self._store.find(node.id)
        if record is None:
            record = self._head.add(node)
            self._store.event(record, "inventory.added", "added to the inventory")
        else:
            record.node, record.planner = node, self._head.planner_for(node)
            self._store.event(record, "inventory.changed", f"changed in the inventory: {', '.join(fields)}")
        for service in ("pxe", "powerman"):
            self._head.send_node(service, record)
        self._want(record, node.images)

    def _want(self, record: Record, images: Iterable[str], *, anew: bool = False) -> None:
        """Sets what is wanted of a node and lets the engine and the node know.

        An image that was wanted before keeps its content, also if its name points to other content by now: only a roll,
        with `anew`, moves a node to that.
        """
        held = {} if anew else {i.name: i for i in record.wanted}
        wanted = tuple(held.get(name) or self._wanted(name) for name in images)
        want(self._store, self._head.engine, record, wanted)
        self._head.sync.push(record)

    def _wanted(self, name: str) -> WantedImage:
        image = self._head.images.get(name)
        return WantedImage(image.name, image.digest, image.size, image.container.to_wire())

    async def _settle(self) -> None:
        self._store.revision += 1
        await self._head.database.flush(self._store)

    # -- nodes

    async def set_state(self, text: str, state: str, force: bool) -> list[str]:
        """Wants nodes up or off. Raises Refused for BUSY nodes that shall go off, unless forced."""
        if state not in ("up", "off"):
            raise InputError(f"cannot set state {state!r}: it is up or off")
        records = self.select(text)
        if state == "off":
            self._refuse_busy(records, force)
        for record in records:
            record.node = dataclasses.replace(record.node, state=state)
            self._store.event(record, "desired.state", f"wanted {state}" + (", by force" if force else ""))
            self._want(record, record.node.images)
            if state == "off" and force:
                self._head.begin(record, "power-off", 1, 30.0)
        await self._settle()
        return [r.name for r in records]

    def _refuse_busy(self, records: list[Record], force: bool) -> None:
        busy = [r.name for r in records if r.value("busy") == "BUSY"]
        if busy and not force:
            raise Refused(f"cannot stop {', '.join(busy[:10])}: BUSY", hint="wait until they are free, or use --force")

    async def clear(self, text: str) -> list[str]:
        """Takes nodes out of quarantine; on a node in sync, also out of FATAL."""
        records = self.select(text)
        for record in records:
            self._head.engine.post(record, Cleared("a person says so"))
            if record.value("run") == "SYNC" and record.value("image") in ("FATAL", "ERROR"):
                try:
                    await self._head.nodes.ask(record, {"kind": "clear"})
                except LayercakeError as error:
                    self._store.event(record, "node.clear-failed", str(error), severity="warning")
        await self._settle()
        return [r.name for r in records]

    async def cycle(self, text: str, force: bool) -> list[str]:
        """Power-cycles nodes and boots them anew: they hang by our lights, and the engine does the rest."""
        records = self.select(text)
        self._refuse_busy(records, force)
        off = [r.name for r in records if r.node.state == "off"]
        if off:
            raise Refused(f"cannot cycle {', '.join(off[:10])}: wanted off", hint="use `layercake power on`")
        for record in records:
            self._store.event(record, "power.cycle", "a person asked for a power cycle")
            self._head.engine.post(record, Cleared("a person asked for a power cycle"))
            self._head.engine.post(record, Discovered({"power": "HANG"}, "a person asked for a power cycle"))
        await self._settle()
        return [r.name for r in records]

    async def power_status(self, text: str) -> list[dict[str, Any]]:
        """What the BMCs say now; one that does not answer has an error in its row."""

        async def one(record: Record) -> dict[str, Any]:
            bmc = record.node.bmc
            row: dict[str, Any] = {"node": record.name, "driver": bmc and bmc.driver, "address": bmc and bmc.address}
            try:
                answer = await self._head.host.call("powerman", "status", {"node": record.node.id})
                return {**row, "power": answer.get("power"), "error": None}
            except LayercakeError as error:
                return {**row, "power": "UNKNOWN", "error": str(error)}

        return list(await asyncio.gather(*(one(r) for r in self.select(text))))

    async def logs(self, name: str, container: str, lines: int) -> str:
        """The last lines of a container's log on a node."""
        record = self._store.named(name)
        if not container and record.wanted:
            container = record.wanted[0].name
        answer = await self._head.nodes.ask(record, {"kind": "logs", "container": container, "lines": max(1, min(lines, 10_000))})
        return str(answer.get("text", ""))

    # -- images

    async def add_image(self, path: Path, name: str, container: dict[str, Any]) -> dict[str, Any]:
        """Puts a squashfs file into the store, under a name that may have pointed to another digest before."""
        image = await asyncio.to_thread(self._head.images.add, path, name, container)
        self._store.event(None, "image.added", f"image {image.name} is {image.digest[:24]}", data={"digest": image.digest})
        return self.image_view(image)

    def image_view(self, image: Image) -> dict[str, Any]:
        """An image as the API shows it."""
        users = sorted(r.name for r in self._store if any(i.digest == image.digest and i.name == image.name for i in r.wanted))
        return {**image.to_record(), "systemd": image.container.systemd, "used_by": users}

    def images(self) -> list[dict[str, Any]]:
        """All images of the store."""
        return [self.image_view(i) for i in self._head.images.list()]

    async def remove_image(self, name: str) -> None:
        """Takes an image out of the store. Raises Refused while a node wants it."""
        users = self.image_view(self._head.images.get(name))["used_by"]
        if users:
            raise Refused(f"cannot remove image {name}: wanted by {', '.join(users[:10])}", hint="roll them to another image first")
        roll = self._head.rolls.image_names().get(name)
        if roll is not None:
            raise Refused(f"cannot remove image {name}: roll {roll} needs it", hint=f"see `layercake roll status {roll}`")
        in_use = self.in_use()
        await asyncio.to_thread(self._head.images.remove, name, in_use=in_use)
        self._store.event(None, "image.removed", f"image {name} was removed")

    def in_use(self) -> set[str]:
        """The digests of all images that a node wants or runs, or a roll may still need. A node that is off runs nothing."""
        running = {i.digest for r in self._store if r.value("power") != "OFF" for i in r.running}
        return {i.digest for r in self._store for i in (*r.wanted, *r.stage)} | running | self._head.rolls.digests()

    async def roll(self, text: str, image: str, replace: str | None) -> dict[str, Any]:
        """Wants another image on nodes at once, without a gate: in the place of `replace`, or of all that they run."""
        records = self.select(text)
        self._head.images.get(image)
        asking.check_replace(records, replace)
        self._head.rolls.refuse(records, "roll")
        for names in {asking.names_after(r, image, replace) for r in records}:
            check_set(self._wanted(name) for name in names)
        for record in records:
            images = asking.names_after(record, image, replace)
            self._store.event(record, "image.roll", f"rolling to {', '.join(images)}")
            self._want(record, images, anew=True)
        await self._settle()
        return {"nodes": [r.name for r in records]}

    # -- rolls in batches

    async def start_roll(self, text: str, ask: asking.Ask) -> Roll:
        """Begins a roll: staged, in batches, with gates. Raises InputError and Refused; nothing has changed then."""
        return await asking.begin(self._head.rolls, self.select(text), ask, self._wanted)
