"""What features decide for the engine, the modules and each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from layercake.agents.sync import Loss
from layercake.fleet.engine import Gate
from layercake.fleet.store import Record, WantedImage
from layercake.kernel.feature import BootSetChoice, NodeField, Running, Stopped
from layercake.kraken.errors import InputError, NotFound, Unreachable

Hook = TypeVar("Hook")


def hooks(running: Mapping[str, Running], of: Callable[[Running], Hook | None]) -> Iterator[Hook]:
    """The hooks of one kind, of those features that have it."""
    for one in running.values():
        if (hook := of(one)) is not None:
            yield hook


class Decisions:
    """Asks the features that run. See Running for what each hook is. Those that are asked of each
    event of a node are kept apart: `gate` says when a step may begin; None: nobody has it wait."""

    def __init__(self, running: Mapping[str, Running]) -> None:
        self._all = running
        self.gate: Gate | None = None
        self._boot_sets: BootSetChoice | None = None
        self._image: Callable[[str], WantedImage] | None = None
        self._spoke: tuple[Callable[[Record, str], None], ...] = ()
        self._stopped: tuple[Stopped, ...] = ()

    def add(self, running: Running) -> None:
        """Another feature runs."""
        self.gate = self.gate or running.gate
        self._boot_sets = self._boot_sets or running.boot_sets
        self._image = self._image or running.image
        self._spoke += () if running.spoke is None else (running.spoke,)
        self._stopped += () if running.stopped is None else (running.stopped,)

    def guard_secrets(self, record: Record, what: str) -> None:
        """Raises Refused for a node that is not to be handed the secrets that `what` names."""
        for guard in hooks(self._all, lambda running: running.guard_secrets):
            guard(record, what)

    def boot_proven(self, record: Record) -> bool:
        """Whether something else than a node's own word says what it has booted."""
        return any(one.vouches(record) for one in hooks(self._all, lambda r: r.boot_proof))

    async def tpm_cleared(self, record: Record) -> None:
        """A node's TPM was cleared. Raises OperationFailed."""
        for one in hooks(self._all, lambda running: running.boot_proof):
            await one.cleared(record)

    def troubles(self, record: Record) -> dict[str, list[str]]:
        """What is wrong with a node, for people, by what."""
        return {
            what: of(record)
            for running in self._all.values()
            for what, of in running.troubles.items()
        }

    def fields(self) -> dict[str, NodeField]:
        """The fields of nodes that features know, by their names in lists."""
        return {
            name: field for running in self._all.values() for name, field in running.fields.items()
        }

    def stopped(self, record: Record) -> str:
        """Why nothing may be begun on a node, "" if something may."""
        for stopped in self._stopped:
            if why := stopped(record):
                return why
        return ""

    def stops_changed(self, nodes: Iterable[str]) -> None:
        """Of these nodes, by their ids, `stopped` may have another answer now."""
        for hook in hooks(self._all, lambda running: running.stops_changed):
            hook(nodes)

    def node_spoke(self, record: Record, how: str) -> None:
        """A node speaks."""
        for hook in self._spoke:
            hook(record, how)

    def lost(self, record: Record, loss: Loss, why: str) -> None:
        """A node fell silent."""
        for hook in hooks(self._all, lambda running: running.lost):
            hook(record, loss, why)

    def claimed(self, record: Record, data: Mapping[str, Any]) -> None:
        """A machine claims a node's place."""
        for hook in hooks(self._all, lambda running: running.claimed):
            hook(record, data)

    async def change_cards(self, record: Record, macs: Sequence[str], by: str) -> None:
        """Makes these MAC addresses a node's. Raises LayercakeError."""
        hook = next(hooks(self._all, lambda running: running.change_cards), None)
        if hook is None:
            raise Unreachable("cannot take it: this head has no inventory to change")
        await hook(record, macs, by)

    def boot_set(self, record: Record) -> str:
        """The boot set that a node boots next, "" for none."""
        return "" if self._boot_sets is None else self._boot_sets.served(record)

    def boot_sets_of_strangers(self) -> Mapping[str, str]:
        """{architecture: boot set} of machines that are being discovered."""
        return {} if self._boot_sets is None else self._boot_sets.of_strangers()

    def kernel_modules(self, record: Record) -> Mapping[str, Any] | None:
        """Where the modules of the kernel are that a node has booted; None if there are none."""
        return next(
            (found for of in hooks(self._all, lambda r: r.kernel_modules) if (found := of(record))),
            None,
        )

    async def matching(
        self, records: Sequence[Record], where: str, *, brief: bool = False
    ) -> list[Record]:
        """The nodes of these that a query means; `brief`: one of a viewer. Raises InputError for
        one that is none."""
        hook = next(hooks(self._all, lambda running: running.matching), None)
        if hook is None:
            raise InputError("cannot look for nodes by a query: this head knows none")
        return await hook(records, where, brief=brief)

    def image(self, name: str) -> WantedImage:
        """An image by its name. Raises NotFound."""
        if self._image is None:
            raise NotFound(f"cannot find image {name!r}: this head has no images")
        return self._image(name)
