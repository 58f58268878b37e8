"""The holds of nodes that are released: nothing boots there but minOS, and no other wish counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from layercake.features.releases.record import Release
from layercake.features.releases.table import Releases
from layercake.fleet.desired import DesiredState
from layercake.fleet.store import Hold, Record, Store, WantedImage
from layercake.fleet.transaction import Transaction


class NodeHolds:
    """Holds nodes, and lets them go. `push` has a node told what is wanted of it."""

    def __init__(
        self, store: Store, desire: DesiredState, releases: Releases, push: Callable[[Record], None]
    ) -> None:
        self._store = store
        self._desire = desire
        self._releases = releases
        self._push = push
        self.progress: dict[str, str] = {}
        """How far the steps that are carried out are, for people, by their nodes."""

    def load(self) -> None:
        """Holds what the kept releases hold, before the engine begins."""
        for record in self._store:
            if why := self.why(record):
                stuck = self._releases.is_stuck(record.node.id)
                record.held = Hold(why, images=self._before(record), stuck=stuck)
                record.wanted = ()

    def why(self, record: Record) -> str:
        """Why a node is held, and how far that is, for people; "" if it is not."""
        found = self._releases.of(record.node.id)
        why = self._releases.why_held(record.node.id)
        return self._worded(record, why, found[-1]) if found and why else why

    def _worded(self, record: Record, why: str, release: Release) -> str:
        progress = self.progress.get(record.node.id, "") if release.next else ""
        if release.waits:
            progress = (
                "switch it off and on yourself and see minOS on its console, then `layercake node "
                f"release --confirm {record.name}`"
            )
        return why + (f": {progress}" if progress else "")

    def _before(self, record: Record) -> tuple[WantedImage, ...]:
        found = self._releases.of(record.node.id)
        return found[-1].before if found else ()

    def hold(
        self, transaction: Transaction, record: Record, release: Release, *, up: bool = True
    ) -> None:
        """What is wanted of a node follows its release: no images, and up or off."""
        why = self._worded(record, release.why, release)
        hold = Hold(why, "up" if up else "off", release.before, release.stuck)
        care = partial(replace, ours=True, released=up and record.value("power") == "OFF")
        self._desire.hold(transaction, record, hold, care=care)
        transaction.after(self._push, record)

    async def apply(self, record: Record, release: Release, *, up: bool) -> None:
        """The same at once. Raises OperationFailed."""
        async with self._desire.transaction() as transaction:
            self.hold(transaction, record, release, up=up)

    def wanted_again(self, record: Record) -> tuple[WantedImage, ...]:
        """What the inventory wants of a node that is held no more; an image that was wanted before
        has the content that it had. Raises NotFound for one that is gone."""
        had = {image.name: image for image in self._before(record)}
        return tuple(had.get(name) or self._desire.image(name) for name in record.node.images)

    def let_go(
        self, transaction: Transaction, record: Record, images: tuple[WantedImage, ...]
    ) -> None:
        """The hold is over, and these images are wanted."""
        self._desire.hold(transaction, record, None, images)
        transaction.after(self._push, record)

    def show_progress(self, record: Record, progress: str) -> None:
        """How far a step is."""
        node = record.node.id
        self.progress[node] = progress
        if record.held is not None:
            stuck = self._releases.is_stuck(node)
            record.held = replace(record.held, why=self.why(record), stuck=stuck)
            self._store.mark(record)
