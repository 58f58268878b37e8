"""What people are shown of the image store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from imageapi.store.store import Image


def image_view(image: Image, users: Iterable[str]) -> dict[str, Any]:
    """An image as the API shows it; `users` are the nodes that want it."""
    return {**image.to_record(), "systemd": image.container.systemd, "used_by": list(users)}
