"""A store as the settings ask for it."""

from __future__ import annotations

from pathlib import Path

from imageapi.settings import ImageSettings
from imageapi.store.rbdstore import Cluster, RbdContent
from imageapi.store.store import ImageStore


def open_store(directory: Path, settings: ImageSettings) -> ImageStore:
    """The image store in `directory`. Nothing outside is asked yet."""
    if settings.store == "file":
        return ImageStore(directory)
    cluster = Cluster(
        settings.conf, settings.keyring, settings.pool, settings.user, settings.node_keyring
    )
    return ImageStore(directory, content=RbdContent(directory, cluster))
