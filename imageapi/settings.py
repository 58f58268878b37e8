"""The images' part of the head's settings."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from imageapi.spec.attachment import RBD_NAME
from imageapi.spec.container import ContainerSpec
from imageapi.spec.names import NAME
from imageapi.spec.privileges import PRIVILEGES
from layercake.base.text import describe, nearest, show
from layercake.kraken.errors import Refused
from layercake.moduleapi.fields import NEWER, Check, Mistake

EVERY_IMAGE = "*"


def privileges(value: object) -> dict[str, list[str]]:
    """Which images may have which privileges on their nodes. Raises Mistake."""
    if not isinstance(value, dict):
        raise Mistake(
            f"expected a mapping of images to privileges, found {describe(value)}",
            "such as {gpu-worker: [devices]}",
        )
    for name, allowed in value.items():
        if name != EVERY_IMAGE and not (isinstance(name, str) and NAME.fullmatch(name)):
            raise Mistake(f"{show(str(name))} is no image's name", f"or {EVERY_IMAGE!r} for all")
        _check_names(name, allowed)
    return value


def _check_names(image: str, allowed: object) -> None:
    if not isinstance(allowed, list):
        raise Mistake(f"{image}: expected a list of {', '.join(PRIVILEGES)}")
    for word in allowed:
        if word not in PRIVILEGES:
            hint = nearest(str(word), PRIVILEGES)
            raise Mistake(f"{image}: {show(str(word))} is no privilege", hint)


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
    privileges: Annotated[
        dict[str, list[str]],
        Check(privileges),
        Meta(
            extra=NEWER,
            description="Which images may reach their nodes, and by what: a mapping of an image's "
            "name (without a tag for all of its tags, `*` for every image) to a list of "
            f"{', '.join(PRIVILEGES)}. Who has one of them may own the node; see "
            "[what a container may do](../explanation/security.md#containers).",
        ),
    ] = {}

    def check_privileges(self, name: str, container: ContainerSpec) -> None:
        """Raises Refused if an image of this name may not be run so."""
        allowed = {
            privilege
            for key in (name, name.partition(":")[0], EVERY_IMAGE)
            for privilege in self.privileges.get(key, ())
        }
        refused = [word for word in container.privileges if word not in allowed]
        if refused:
            raise Refused(
                f"cannot add image {name}: its `{'`, `'.join(refused)}` would give it "
                f"{', '.join(PRIVILEGES[word] for word in refused)}",
                hint=f"`privileges: {{{name.partition(':')[0]}: [{', '.join(refused)}]}}` under "
                "`images` in config.yaml allows it, after a restart of the head",
            )


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
