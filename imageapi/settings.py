"""The images' part of the head's settings."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from imageapi.spec.attachment import RBD_NAME
from layercake.moduleapi.fields import NEWER, Mistake


class ImageSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The image store, and the web server that nodes fetch images from."""

    http_port: Annotated[
        int, Meta(ge=0, le=65535, description="TCP port of the web server for images.")
    ] = 8081
    start_s: Annotated[
        float,
        Meta(
            ge=10,
            le=86400,
            extra=NEWER,
            description="Seconds for a node's images: to be fetched and started.",
        ),
    ] = 300.0
    stop_s: Annotated[
        float,
        Meta(
            ge=10, le=86400, extra=NEWER, description="Seconds for a node's images: to be stopped."
        ),
    ] = 60.0
    store: Annotated[
        Literal["file", "rbd"],
        Meta(description="file: in the data directory. rbd: in an existing Ceph cluster."),
    ] = "file"
    conf: Annotated[str, Meta(description="rbd: the cluster's ceph.conf.")] = ""
    keyring: Annotated[str, Meta(description="rbd: a keyring with the head's client.")] = ""
    pool: Annotated[str, Meta(description="rbd: the pool for images.")] = ""
    user: Annotated[
        str, Meta(description="rbd: the client in the keyring; the first if not given.")
    ] = ""
    node_keyring: Annotated[
        str,
        Meta(
            description="rbd: a keyring with the client that all nodes share; without it the head "
            "makes one for each node."
        ),
    ] = ""


def check(settings: ImageSettings) -> None:
    """Raises Mistake if the settings do not go together."""
    if settings.store != "rbd":
        return
    missing = [name for name in ("conf", "keyring", "pool") if not getattr(settings, name)]
    if missing:
        raise Mistake(
            f"images.store is rbd, and {', '.join(f'images.{m}' for m in missing)} is not given",
            "the cluster's ceph.conf, the head's keyring, and the name of the pool for images",
            "store",
        )
    if not RBD_NAME.fullmatch(settings.pool):
        raise Mistake(
            f"images.pool {settings.pool!r} is not letters, digits, dots and dashes", field="pool"
        )
