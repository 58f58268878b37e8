"""What people are shown of the image store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from imageapi.store.store import Image


def image_view(image: Image, users: Iterable[str], *, brief: bool = False) -> dict[str, Any]:
    """An image as the API shows it; `users` are the nodes that want it. `brief`: for viewers,
    without how it is run, as commands and environment may hold what is not for them."""
    record = image.to_record()
    if brief:
        record["container"] = {"systemd": image.container.systemd}
    return {
        **record,
        "systemd": image.container.systemd,
        "privileges": list(image.container.privileges),
        "used_by": list(users),
    }
