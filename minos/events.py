"""What a node's agent tells beside what its images do (imageapi/events.py) and its engine (layercake/kraken/events.py)."""

from __future__ import annotations

from layercake.kraken.events import Bearing, EventKind, Severity

NODE_API = EventKind("node.api", Severity.DEBUG, "The port on which the node's own API listens.", Bearing.STANDING)
NODE_API_FAILED = EventKind("node.api-failed", Severity.WARNING, "The node's own API is not served; its images are not concerned.")
EVENTS_DROPPED = EventKind("service.events-dropped", Severity.WARNING, "Events were dropped: the head was away for too long.")

AGENT = EventKind("agent.runs", Severity.DEBUG, "Of which boot set the node's agent is.", Bearing.STANDING)
AGENT_SWAPPED = EventKind("agent.swapped", Severity.INFO, "The node's agent was replaced in place; its images go on.")
AGENT_SWAP_FAILED = EventKind("agent.swap-failed", Severity.ERROR,
    "The node's agent could not be replaced, or the new one was given up; the one from before goes on.")

HARDWARE = EventKind("node.hardware", Severity.DEBUG,
    "The network cards of the node, and how long its drivers took.", Bearing.STANDING)
NO_DRIVER = EventKind("node.card-without-driver", Severity.WARNING,
    "A network card of the node has no driver; the text says which module it needs, if one is known.")

DRIVERS = EventKind("node.drivers-fetched", Severity.INFO,
    "Drivers that the node's boot profile does not have were fetched from the head, and loaded, for devices that had none.")
DRIVER_FAILED = EventKind("node.driver-failed", Severity.WARNING,
    "A driver that the node's boot profile does not have could not be fetched or loaded; the text says why.")
DRIVERS_LEFT = EventKind("node.drivers-left", Severity.DEBUG,
    "Drivers that the kernel has for devices of the node were not fetched; the text says why.")

EVENTS: tuple[EventKind, ...] = (NODE_API, NODE_API_FAILED, EVENTS_DROPPED, AGENT, AGENT_SWAPPED, AGENT_SWAP_FAILED, HARDWARE,
                                 NO_DRIVER, DRIVERS, DRIVER_FAILED, DRIVERS_LEFT)
