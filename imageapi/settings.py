"""The images' part of the head's settings."""

from __future__ import annotations

from typing import Literal

import msgspec

from imageapi.spec.attachment import RBD_NAME
from layercake.kraken.errors import InputError


class ImageSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The image store, and its HTTP server.

    `store` is "file" (in the data directory) or "rbd": an existing Ceph cluster by its `conf`, a `keyring` with the head's
    client (the first in it, or `user`) and a `pool`. Nodes get the key in `node_keyring`; without it, the head asks the
    cluster for one, which its own client must be allowed to.
    """

    http_port: int = 8081
    store: Literal["file", "rbd"] = "file"
    conf: str = ""
    keyring: str = ""
    pool: str = ""
    user: str = ""
    node_keyring: str = ""

    def check(self, where: object) -> None:
        """Raises InputError, naming `where`, if these do not go together."""
        if self.store != "rbd":
            return
        missing = [name for name in ("conf", "keyring", "pool") if not getattr(self, name)]
        if missing:
            names = ", ".join(f"images.{name}" for name in missing)
            raise InputError(f"cannot use {where}: images.store is rbd, and {names} is not given",
                             hint="the cluster's ceph.conf, the head's keyring, and the name of the pool for images")
        if not RBD_NAME.fullmatch(self.pool):
            raise InputError(f"cannot use {where}: images.pool {self.pool!r} is not letters, digits, dots and dashes")
