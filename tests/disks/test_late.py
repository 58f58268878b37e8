"""A node's disks where nothing is said of them: by an inventory that has lost them, or an older
head."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from layercake.kraken.errors import OperationFailed
from layercake.node.disks import LateDisks


def test_a_node_that_planned_by_disks_goes_on_without_them() -> None:
    """It was told its steps as it joined. An agent that takes over then has no word of disks any
    more: images must not wait."""
    core: Any = SimpleNamespace()
    disks = LateDisks(core, lambda url, offset: pytest.fail("nothing is fetched"))
    with pytest.raises(OperationFailed, match="said nothing of them yet"):
        disks.discover()
    disks.set_desired({"images": []}, SimpleNamespace())  # type: ignore[arg-type]
    assert (disks.discover(), disks.prepare(), disks.close(), disks.wait(lambda: False)) == (
        "READY",
        "READY",
        "BLANK",
        "BLANK",
    )
    assert disks.value == ""
