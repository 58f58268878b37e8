"""What is answered about nodes and their power."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from layercake.api.answers import Values
from layercake.features.machines.hardware.summary import Hardware
from layercake.features.nodes.lists.causes import Beside, Cause
from layercake.fleet.store import Event, Interface, NetworkCard, NodeClock
from layercake.kraken.views.explain import StepView


class ImageShown(msgspec.Struct):
    """An image of a node."""

    name: str
    digest: str


class NodeImages(msgspec.Struct):
    """What a node should run, and what it runs."""

    wanted: list[ImageShown]
    running: list[ImageShown]


class Container(msgspec.Struct):
    """A container, as its node says."""

    name: str
    digest: str
    state: str
    health: str
    pid: int
    retries: int
    last_error: str
    error: str
    started_s: float | None
    retry_in_s: float | None


class NodeBoots(msgspec.Struct):
    """Boot sets: of the next boot if it is not the default, of this one, of its agent, and why the
    agent could not be replaced."""

    next: str | None
    runs: str | None
    agent: str | None
    agent_error: str | None


class BootTime(msgspec.Struct):
    """How long a node takes from power-on to its agent's join, in seconds: usually, at most, of how
    many boots, how long the boot that goes on has taken, and how long its firmware is waited
    for."""

    usual_s: float | None
    longest_s: float | None
    boots: int
    now_s: float | None
    limit_s: float | None


class Attempt(msgspec.Struct):
    """What is done to a node now."""

    mutation: str
    attempt: int
    seconds: float
    deadline_s: float | None


class NodeShown(msgspec.Struct):
    """A node. Times in seconds. `state` and `goal` are by variable; modules show parts of their
    own, such as `bmc`."""

    name: str
    id: str
    state: Values
    goal: Values
    wanted: str
    in_use: bool
    status: str
    status_text: str
    stopped: list[str]
    ours: bool
    images: NodeImages
    containers: list[Container]
    ip: str
    macs: list[str]
    firmware: str
    profile: str | None
    network: str | None
    cards: list[NetworkCard]
    clock: NodeClock | None
    interfaces: list[Interface]
    groups: list[str]
    labels: dict[str, str]
    domains: list[str]
    boot_id: str | None
    boots: NodeBoots
    boot_time: BootTime | None
    last_seen_s: float | None
    active: Attempt | None
    since_s: float
    revision: int


class RollOfNode(msgspec.Struct):
    """The roll that is under way with a node, and how far the node is in it (RollNode.state)."""

    id: int
    image: str
    state: str


class HardwareShown(Hardware, frozen=True, kw_only=True):
    """A node's hardware as of its last survey. `memory` and the `disks` are in bytes, `cards` are
    the drivers of its network cards, `gpus` and `fabrics` VENDOR:DEVICE by PCI, `bios` and
    `bmc_firmware` versions."""

    serial: str


class _OfFeatures(msgspec.Struct):
    """What is in a list only where it is asked for by name. Null: it is not known, or not for
    viewers (hardware)."""

    kernel: str | None
    roll: RollOfNode | None
    hardware: HardwareShown | None


NodeListed = msgspec.defstruct(
    "NodeListed",
    [
        (field.name, field.type | UnsetType, UNSET)
        for field in (*msgspec.structs.fields(NodeShown), *msgspec.structs.fields(_OfFeatures))
    ],
    namespace={
        "__doc__": "A node in a list: all that is shown of one, or the fields that were asked for."
    },
)
"""The fields of NodeShown and _OfFeatures, each of which may be left out."""


class NodeList(msgspec.Struct):
    """Nodes, and the names of the variables of their state. `next`: the name to go on `after`, null
    at the end. `change` is for `since` of the next question; `whole`: these are all nodes, not only
    those that have changed since; `removed` are the names of those that are there no more, or no
    longer what was asked for."""

    nodes: list[NodeListed]  # type: ignore[valid-type]
    variables: list[str]
    next: str | None
    change: str
    whole: bool
    removed: list[str]


class NodeWithHistory(msgspec.Struct):
    """A node and what happened to it, oldest first."""

    node: NodeShown
    history: list[Event]


class ActiveStep(msgspec.Struct):
    """The mutation under way."""

    mutation: str
    doc: str
    where: str
    attempt: int
    mine: bool
    seconds: float
    deadline_s: float | None


class Quarantine(msgspec.Struct):
    """Why a node is left alone."""

    mutation: str
    reason: str
    seconds: float
    attempts: int


class ExplanationShown(msgspec.Struct):
    """Where a node is, and what stands in its way. `chain` null: there is no way."""

    node: str
    status: str
    status_text: str
    summary: str
    state: Values
    goal: Values
    met: bool
    chain: list[StepView] | None
    active: ActiveStep | None
    blocked: list[str]
    quarantine: Quarantine | None
    attempts: dict[str, int]
    last_error: str
    history: list[Any]
    unhealthy: str
    network: list[str]
    bmc: list[str]
    files: list[str]
    disks: list[str]
    tpm: list[str]
    console: list[str]
    roll: str
    hardware: list[str]
    trouble: list[Event]
    boot: list[Event]
    boot_time: BootTime | None


class Causes(msgspec.Struct):
    """How many nodes are as wanted, and what keeps the others from it: the cause of most nodes
    first. `stopped` are those that are as wanted, but frozen, in maintenance or being released:
    nothing is done to them. `beside` is what else is wrong, such as consoles that cannot be had;
    viewers are not told."""

    well: int
    causes: list[Cause]
    stopped: list[str] = []
    beside: list[Beside] = []


class Explained(msgspec.Struct):
    """The explanation, and the same as text."""

    explanation: ExplanationShown
    text: str


class Text(msgspec.Struct):
    """The end of a log."""

    text: str
