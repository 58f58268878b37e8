"""Which settings all heads of a site have alike, and how a head takes them over.

What names a thing of one machine is that head's own: its network, its addresses, its socket, its
place among the heads. All other settings are the site's. The head that leads writes them to SITE
whenever its config.yaml changes, and they are copied like its other files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from layercake.base.files import write_atomic
from layercake.head import settings as head_settings
from layercake.head.settings import Settings
from layercake.kraken.errors import InputError, LayercakeError

SITE = "heads/site.yaml"
OWN = (
    "interface",
    "address",
    "prefix",
    "gateway",
    "dns",
    "more_networks",
    "api_listen",
    "dashboard_url",
    "socket",
    "socket_group",
    "socket_role",
    "heads",
)
"""Settings that each head has of its own."""


def site_part(settings: Settings) -> bytes:
    """The settings that are the site's, in YAML."""
    document = head_settings.document(settings)
    return msgspec.yaml.encode({k: v for k, v in document.items() if k not in OWN})


def merged(settings: Settings, site: bytes) -> dict[str, Any]:
    """The settings of this head, with those of the site in place of what it had. Raises
    InputError."""
    try:
        document = yaml.safe_load(site)
    except yaml.YAMLError as error:
        raise InputError(f"cannot read the site's settings: {error}") from None
    if not isinstance(document, dict):
        raise InputError("cannot read the site's settings: they are no mapping")
    own = {k: v for k, v in head_settings.document(settings).items() if k in OWN}
    return {**{k: v for k, v in document.items() if k not in OWN}, **own}


def take_over(data_dir: Path, settings: Settings) -> bool:
    """Has this head's config.yaml say what the leader's says, but for what is its own; whether it
    said something else. Raises LayercakeError for settings that this version cannot use: it stays
    as it was."""
    try:
        site = (data_dir / SITE).read_bytes()
    except FileNotFoundError:
        return False
    if site == site_part(settings):
        return False
    head_settings.save(data_dir, head_settings.checked(merged(settings, site)))
    return True


class SiteSettings:
    """Keeps SITE as the config.yaml of the head that leads has it."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._seen = 0

    def write(self) -> None:
        """Writes it where config.yaml has changed; one that cannot be read is told of by the next
        start of the head. May block. Raises OSError."""
        modified = (self._data_dir / head_settings.FILE_NAME).stat().st_mtime_ns
        if modified == self._seen:
            return
        self._seen = modified
        try:
            now = site_part(head_settings.load(self._data_dir))
        except LayercakeError:
            return
        file = self._data_dir / SITE
        if not file.exists() or file.read_bytes() != now:
            write_atomic(file, now, durable=True)
