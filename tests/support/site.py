"""What a module's process is told of the head, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from layercake.moduleapi.module import Site
from pxe.settings import BootSettings, Settings


def site(**changes: Any) -> Site:
    """A head at 10.99.0.1 on br0."""
    return Site(
        **{
            "interface": "br0",
            "address": "10.99.0.1",
            "prefix": 24,
            "gateway": None,
            "dns": [],
            "head_url": "https://10.99.0.1:8443",
            "sync_address": "10.99.0.1:31415",
            "data_dir": "/nowhere",
            **changes,
        }
    )


def boot_settings(
    *, data_dir: str | Path = "/nowhere", boot: dict[str, Any] | None = None, **changes: Any
) -> Settings:
    """The boot service's settings; `boot` is its section, the rest are facts of the head."""
    return Settings.of(site(data_dir=str(data_dir), **changes), BootSettings(**(boot or {})))
