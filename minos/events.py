"""What a node's agent tells beside what its images do (imageapi/events.py) and its engine
(layercake/kraken/events.py)."""

from __future__ import annotations

from layercake.kraken.events import Bearing, EventKind, Severity

NODE_API = EventKind(
    "node.api", Severity.DEBUG, "The port on which the node's own API listens.", Bearing.STANDING
)
NODE_API_FAILED = EventKind(
    "node.api-failed",
    Severity.WARNING,
    "The node's own API is not served; its images are not concerned.",
)
EVENTS_DROPPED = EventKind(
    "service.events-dropped",
    Severity.WARNING,
    "Events were dropped: the head was away for too long.",
)

AGENT = EventKind(
    "agent.runs", Severity.DEBUG, "Of which boot set the node's agent is.", Bearing.STANDING
)
AGENT_SWAPPED = EventKind(
    "agent.swapped", Severity.INFO, "The node's agent was replaced in place; its images go on."
)
AGENT_SWAP_FAILED = EventKind(
    "agent.swap-failed",
    Severity.ERROR,
    "The node's agent could not be replaced, or the new one was given up; the one from before goes "
    "on.",
)

HARDWARE = EventKind(
    "node.hardware",
    Severity.DEBUG,
    "The network cards of the node, and how long its drivers took.",
    Bearing.STANDING,
)
NO_DRIVER = EventKind(
    "node.card-without-driver",
    Severity.WARNING,
    "A network card of the node has no driver; the text says which module it needs, if one is "
    "known.",
)

DRIVERS = EventKind(
    "node.drivers-fetched",
    Severity.INFO,
    "Drivers that the node's boot profile does not have were fetched from the head, and loaded, "
    "for devices that had none.",
)
DRIVER_FAILED = EventKind(
    "node.driver-failed",
    Severity.WARNING,
    "A driver that the node's boot profile does not have could not be fetched or loaded; the text "
    "says why.",
)
DRIVERS_LEFT = EventKind(
    "node.drivers-left",
    Severity.DEBUG,
    "Drivers that the kernel has for devices of the node were not fetched; the text says why.",
)

CLOCK = EventKind(
    "node.clock",
    Severity.DEBUG,
    "How far the node's clock was off, and by which server it is kept.",
    Bearing.STANDING,
)
CLOCK_SET = EventKind(
    "node.clock-set", Severity.INFO, "The node's clock was far enough off to be set."
)
NO_TIME = EventKind(
    "node.no-time", Severity.WARNING, "Nobody keeps the node's clock; the text says why."
)
TIME_REFUSED = EventKind(
    "node.time-refused",
    Severity.WARNING,
    "A time server says a time that is far from the head's: it is not believed.",
)

NETWORK = EventKind(
    "node.interfaces",
    Severity.DEBUG,
    "How the interfaces are that the inventory names.",
    Bearing.STANDING,
)
NETWORK_SET = EventKind(
    "node.network-set", Severity.INFO, "The node's interfaces are as the inventory has them."
)
NETWORK_CHANGED = EventKind(
    "node.network-changed",
    Severity.WARNING,
    "Somebody else has changed an interface of the node; it was set again. The text says what it "
    "was and what it had become.",
)
NETWORK_FAILED = EventKind(
    "node.network-failed",
    Severity.WARNING,
    "An interface of the node is not as the inventory has it; the text says why. The rest of the "
    "node does its work.",
)
LEG_DOWN = EventKind(
    "node.leg-down",
    Severity.WARNING,
    "A leg of a bond has no carrier, or, by 802.3ad, no partner; the bond goes on with the others.",
)
LEG_UP = EventKind("node.leg-up", Severity.INFO, "A leg of a bond is there again.")

FILES = EventKind(
    "node.files",
    Severity.DEBUG,
    "Which files the node has beside what its images bring, and which of them running images get "
    "when they are started next.",
    Bearing.STANDING,
)
FILES_WRITTEN = EventKind(
    "node.files-written",
    Severity.INFO,
    "Files of the node were changed while it ran; the text says which, and what was done so that "
    "they count.",
)
FILES_FAILED = EventKind(
    "node.files-failed",
    Severity.WARNING,
    "Files of the node could not be fetched or written, or what was to be done then has failed; "
    "the text says why.",
)

TASK_DONE = EventKind(
    "node.task-done",
    Severity.INFO,
    "A task of the site was done on the node, before its images start.",
)
TASK_FAILED = EventKind(
    "node.task-failed",
    Severity.WARNING,
    "A task of the site has failed on the node; the text says why, and whether the images wait for "
    "it.",
)

DISKS = EventKind("node.disks", Severity.DEBUG, "How the node's own disks are.", Bearing.STANDING)
DISKS_READY = EventKind(
    "node.disks-ready",
    Severity.INFO,
    "The node's own disks are made as the inventory has them, and mounted.",
)
DISK_FOREIGN = EventKind(
    "node.disk-foreign",
    Severity.WARNING,
    "A disk holds something that no layout of this node has made: it is not touched, and the "
    "node's images wait for a person.",
)
DISK_WIPED = EventKind(
    "node.disk-wiped",
    Severity.WARNING,
    "A disk that held something was made anew, as the inventory and a person have said; the text "
    "says what it held.",
)
DISK_FAILED = EventKind(
    "node.disk-failed",
    Severity.ERROR,
    "The node's disks are not as the inventory has them; the text says why.",
)

THERMAL = EventKind(
    "node.thermal", Severity.DEBUG, "How warm the node is, by its own sensors.", Bearing.STANDING
)
GOVERNOR = EventKind(
    "node.governor",
    Severity.INFO,
    "The frequency governor of the node's processors was changed because of how warm it is, or set "
    "back.",
)

BUTTON = EventKind(
    "node.power-button",
    Severity.WARNING,
    "The node's power button was pressed, or its BMC asked for that: its images are stopped, and "
    "it goes off.",
)

CORES_FAILED = EventKind(
    "node.cores-failed",
    Severity.WARNING,
    "The agent does not run on the cores that `minos.cores` names, as the node does not have them; "
    "the text says on which it does. Its images are not concerned.",
)

EVENTS: tuple[EventKind, ...] = (
    NODE_API,
    NODE_API_FAILED,
    EVENTS_DROPPED,
    AGENT,
    AGENT_SWAPPED,
    AGENT_SWAP_FAILED,
    HARDWARE,
    NO_DRIVER,
    DRIVERS,
    DRIVER_FAILED,
    DRIVERS_LEFT,
    CLOCK,
    CLOCK_SET,
    NO_TIME,
    TIME_REFUSED,
    NETWORK,
    NETWORK_SET,
    NETWORK_CHANGED,
    NETWORK_FAILED,
    LEG_DOWN,
    LEG_UP,
    FILES,
    FILES_WRITTEN,
    FILES_FAILED,
    TASK_DONE,
    TASK_FAILED,
    DISKS,
    DISKS_READY,
    DISK_FOREIGN,
    DISK_WIPED,
    DISK_FAILED,
    THERMAL,
    GOVERNOR,
    BUTTON,
    CORES_FAILED,
)
