"""What powerman tells of nodes."""

from __future__ import annotations

from layercake.kraken.events import Bearing, EventKind, Severity

STATE = EventKind(
    "power.state", Severity.INFO, "The BMC says another power state than was known.", private=True
)
UNREACHABLE = EventKind(
    "power.unreachable",
    Severity.WARNING,
    "The BMC does not answer, or refuses the login; it is left alone for a while.",
)
RECOVERED = EventKind("power.recovered", Severity.INFO, "The BMC answers again.")
NO_BMC = EventKind(
    "power.no-bmc",
    Severity.WARNING,
    "The node has no BMC that can be used: its power is not managed.",
)
BY_HAND = EventKind(
    "power.by-hand",
    Severity.WARNING,
    "The node has no BMC, so a person is asked to switch it; the text says how. It goes on by "
    "itself once that was seen.",
)
FIRMWARE = EventKind(
    "power.firmware",
    Severity.DEBUG,
    "The BMC says what the firmware is at, before that asks for a boot.",
    Bearing.FIRMWARE,
)
BOOT_DEVICE = EventKind(
    "power.boot-device",
    Severity.WARNING,
    "The BMC cannot set the next boot to the network, or forgets what it was set to. The node is "
    "switched on all the same; told "
    "once.",
)
MEDIUM = EventKind(
    "power.medium",
    Severity.INFO,
    "The boot medium was put into the BMC's virtual drive, is fetched from there, or was taken out "
    "when the node had booted.",
)
MEDIUM_STAYS = EventKind(
    "power.medium-stays",
    Severity.WARNING,
    "The boot medium cannot be taken out of the BMC's virtual drive; the next boot tries it again.",
)
SOFT_OFF = EventKind(
    "power.soft-off",
    Severity.INFO,
    "The system did not shut down by itself in time; its power is cut.",
)
CONSOLE_TAKEN = EventKind(
    "power.console-taken",
    Severity.WARNING,
    "Somebody else has the node's console. It is left to them, and tried again now and then; told "
    "once.",
)
CONSOLE_LOST = EventKind(
    "power.console-lost",
    Severity.WARNING,
    "The node's console cannot be opened, or was lost. It is tried again; told once, until it is "
    "open again.",
)
CONSOLE_BACK = EventKind("power.console-back", Severity.INFO, "The node's console is open again.")
CONSOLE_LOG = EventKind(
    "power.console-log",
    Severity.WARNING,
    "The logs of the consoles are not written: there is no room for them. Told once, until they "
    "are again.",
)
CONSOLE_LOG_BACK = EventKind(
    "power.console-log-back", Severity.INFO, "The logs of the consoles are written again."
)
BMC_LOG = EventKind(
    "power.bmc-log",
    Severity.INFO,
    "The BMC has written something into its event log; the severity is the BMC's. Each entry is "
    "told once.",
)
HEALTH = EventKind(
    "power.health",
    Severity.INFO,
    "The BMC says another health of its machine than before; the severity is that of what it says.",
)

EVENTS: tuple[EventKind, ...] = (
    STATE,
    UNREACHABLE,
    RECOVERED,
    NO_BMC,
    BY_HAND,
    FIRMWARE,
    BOOT_DEVICE,
    MEDIUM,
    MEDIUM_STAYS,
    SOFT_OFF,
    CONSOLE_TAKEN,
    CONSOLE_LOST,
    CONSOLE_BACK,
    CONSOLE_LOG,
    CONSOLE_LOG_BACK,
    BMC_LOG,
    HEALTH,
)
