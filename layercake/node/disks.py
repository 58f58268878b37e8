"""The node's own disks and what there is for them: tools out of the boot set, modules, keys,
mounts. Nothing of it is imported on a node that has none in the inventory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imageapi.node import mount
from imageapi.node.attach.disks import names
from imageapi.node.attach.fetch import Fetch
from imageapi.node.imageset.layers import Key, Layers
from imageapi.spec.image import parse_image
from layercake.kraken.errors import OperationFailed
from layercake.node.modules import load_module
from minos.agent.core import AgentCore
from minos.agent.head_link.secret_client import SecretClient
from minos.agent.state import Session

if TYPE_CHECKING:
    from minos.agent.disks.layout import Layout
    from minos.agent.disks.manager import DiskManager

TOOLS = "disktools"
BLANK = "BLANK"
READY = "READY"
"""Of a node without disks in the inventory: nothing is to be done, and nothing is in the way
(minos.agent.disks.judge)."""
KEY_BYTES = 64


def fetch_disk_tools(run: Path, open_url: Fetch, key: Key, said: Mapping[str, Any] | None) -> Path:
    """The programs for disks, mounted, as the head says where they are. Raises LayercakeError."""
    if not said:
        raise OperationFailed(
            "the head gives no programs for disks for the boot set that this node has booted",
            hint="build another boot set and boot it: `layercake boot build`, then "
            "`layercake boot roll RANGE SET`",
        )
    layers = Layers(run / TOOLS, open_url, _no_secret, key)
    content = {
        field: said[field] for field in ("digest", "size", "url", "signature") if field in said
    }
    return layers.layer(parse_image({"name": TOOLS, **content}), lambda: False)


def _no_secret(name: str) -> bytes:
    raise OperationFailed(f"cannot get secret {name}: programs for disks need none")


class LateDisks:
    """The manager of the disks, made when the first layout comes (minos.agent.disks.manager)."""

    def __init__(self, core: AgentCore, open_url: Fetch) -> None:
        self._core = core
        self._open_url = open_url
        self._manager: DiskManager | None = None
        self._tools: Mapping[str, Any] | None = None
        self._known: Session | None = None

    @property
    def value(self) -> str:
        """The value of the variable disk, "" if nobody has looked."""
        return "" if self._manager is None else self._manager.value

    def set_desired(self, document: Mapping[str, Any], session: Session) -> None:
        """Wants what a desired state says of disks."""
        tools = document.get("disk_tools")
        self._tools = tools if isinstance(tools, Mapping) else None
        self._known = session
        if self._manager is None and document.get("disks"):
            self._manager = self._make()
        if self._manager is not None:
            self._manager.set_desired(document)

    def report_again(self) -> None:
        """Tells the head again how they are."""
        if self._manager is not None:
            self._manager.report_again()

    # ---- the mutations of `disk` (minos.disks.mutations.Disks)
    # -----------------------------------------------------------------

    # A node plans by what its head said as it joined; its inventory may have lost its disks since,
    # or its head be an older one.

    def discover(self) -> str:
        """Finds out how they are, and brings up what was made before. Raises LayercakeError."""
        if self._known is None:
            raise OperationFailed("cannot look at the disks: the head has said nothing of them yet")
        return READY if self._manager is None else self._manager.discover()

    def prepare(self) -> str:
        """Makes what is not there yet. Raises LayercakeError."""
        return READY if self._manager is None else self._manager.prepare()

    def wait(self, interrupted: Callable[[], bool]) -> str:
        """Waits until what was in the way is out of it. Raises LayercakeError."""
        return BLANK if self._manager is None else self._manager.wait(interrupted)

    def close(self) -> str:
        """Takes down what is up. Raises LayercakeError."""
        return BLANK if self._manager is None else self._manager.close()

    # ---- with what it is done
    # -----

    def _make(self) -> DiskManager:
        from minos.agent.disks.manager import DiskManager
        from minos.agent.disks.stack import Means
        from minos.agent.disks.tools import Tools

        core = self._core
        tools = Tools(
            lambda: fetch_disk_tools(
                core.config.run, self._open_url, lambda: core.image_key, self._tools
            )
        )
        return DiskManager(
            core.config,
            core.event,
            names,
            Means(tools, self._need, self._key, mount.filesystem, mount.unmount, core.config.node),
        )

    def _key(self, layout: Layout) -> bytes:
        return (
            SecretClient(self._core.config).of_disks(layout.name)
            if layout.encrypt == "kept"
            else os.urandom(KEY_BYTES)
        )

    def _need(self, name: str) -> None:
        session = self._known
        assert session is not None  # noqa: S101 (want() comes first)
        load_module(self._core, session, name)
