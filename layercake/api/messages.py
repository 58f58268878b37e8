"""The bodies of API requests. What does not fit one is refused with the field's name and what was expected."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class InventoryText(msgspec.Struct, forbid_unknown_fields=True):
    """An inventory to plan. `file` is its name, for messages."""

    yaml: str
    file: str = "inventory.yaml"


class ApplyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An inventory to apply. `digest` is the plan's: it is refused if the state has changed since."""

    yaml: str
    file: str = "inventory.yaml"
    digest: str | None = None
    allow_remove: bool = False


class RangeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes by range: names, `n[0-3]`, `@group`."""

    range: str


class StateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes that are wanted up or off. `force` includes BUSY ones, and switches off without waiting for their images."""

    range: str
    state: Literal["up", "off"]
    force: bool = False


class PowerRequest(msgspec.Struct, forbid_unknown_fields=True):
    """on and off change what is wanted; cycle boots anew."""

    range: str
    action: Literal["on", "off", "cycle"]
    force: bool = False


class ImageRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A squashfs file on the head, to be added to the image store under a name. The fields from `depends` on are optional
    parts of a container description, checked by imageapi.spec.container."""

    path: str
    name: str
    systemd: bool = True
    command: list[str] | None = None
    env: dict[str, str] = {}
    stop_timeout_s: float = 10.0
    restart: Literal["on-failure", "never", "always"] = "on-failure"
    depends: list[str] | None = None
    health: dict[str, Any] | None = None
    resources: dict[str, Any] | None = None
    devices: list[str] | None = None
    hooks: dict[str, Any] | None = None
    mounts: list[dict[str, Any]] | None = None
    workdir: str | None = None
    namespaces: list[str] | None = None
    hostname: str | None = None

    def container(self) -> dict[str, Any]:
        """The container part."""
        return {k: v for k, v in msgspec.to_builtins(self).items() if k not in ("path", "name")}


class RollRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An image to roll to, in the place of `replace` or of all images of the nodes."""

    range: str
    image: str
    replace: str | None = None


class RollStart(msgspec.Struct, forbid_unknown_fields=True):
    """A roll in batches: the new content is staged on every node first, each batch has to pass its gate.

    `batch` and `max_unavailable` are a number of nodes or a share of a stage ("10%"); empty means all at once. `canary` nodes go
    first, alone. A node passes the gate when it was well for `health_timeout_s` after its switch. `stages` are groups of the
    inventory, in order; the last may be "all". `by` says who asks.
    """

    range: str
    image: str
    replace: str | None = None
    batch: str = ""
    max_unavailable: str = ""
    canary: int = 0
    health_timeout_s: float = 5.0
    on_failure: Literal["rollback", "pause"] = "rollback"
    on_stage_failure: Literal["skip", "fail"] = "skip"
    stages: list[str] = []
    by: str = ""


class RollOrder(msgspec.Struct, forbid_unknown_fields=True):
    """An order to a roll. `by` says who gives it."""

    by: str = ""
