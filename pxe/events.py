"""What the boot service tells of nodes, and of itself."""

from __future__ import annotations

from layercake.kraken.events import Bearing, EventKind, Severity

DISCOVER_SEEN = EventKind(
    "boot.discover-seen",
    Severity.INFO,
    "A node's firmware, or iPXE in it, asks for a boot program.",
    Bearing.PROGRESS,
)
OFFER_SENT = EventKind(
    "boot.offer-sent", Severity.INFO, "It was offered its address and something to boot."
)
ADDRESS_TAKEN = EventKind(
    "boot.address-taken",
    Severity.INFO,
    "Firmware takes its node's address from the site's DHCP server (boot.dhcp: proxy).",
    Bearing.PROGRESS,
)
OTHER_ADDRESS = EventKind(
    "boot.other-address",
    Severity.WARNING,
    "The site's DHCP server gives a node another address than the inventory: nothing can be "
    "fetched from there.",
)
NO_ADDRESS = EventKind(
    "boot.no-address",
    Severity.WARNING,
    "Firmware asks by DHCP again and again and takes no address: the site's DHCP server has "
    "offered it none.",
)
NBP_SENT = EventKind(
    "boot.nbp-sent", Severity.INFO, "The boot program (iPXE) has arrived.", Bearing.PROGRESS
)
SCRIPT_SENT = EventKind(
    "boot.script-sent", Severity.INFO, "The node's own boot script was sent.", Bearing.PROGRESS
)
KERNEL_SENT = EventKind(
    "boot.kernel-sent", Severity.INFO, "The kernel has arrived.", Bearing.PROGRESS
)
HARDWARE_SENT = EventKind(
    "boot.hardware-sent",
    Severity.INFO,
    "The drivers for its hardware have arrived.",
    Bearing.PROGRESS,
)
INITRD_SENT = EventKind(
    "boot.initrd-sent",
    Severity.INFO,
    "minOS has arrived; the node starts it now.",
    Bearing.PROGRESS,
)
DISCOVERING = EventKind(
    "discovery.boots",
    Severity.INFO,
    "A machine that is not in the inventory boots to be discovered, as its network allows.",
)
DISCOVERY_FULL = EventKind(
    "discovery.waits",
    Severity.WARNING,
    "More unknown machines ask for a boot than may be discovered at once: they get no answer until "
    "others are done.",
)
DISCOVERY_FAILED = EventKind(
    "discovery.failed",
    Severity.ERROR,
    "An unknown machine cannot be discovered; the text says why.",
)
DISCOVERY_LOST = EventKind(
    "discovery.lost",
    Severity.WARNING,
    "An unknown machine was given a boot to be discovered, and did not report in time.",
)
IGNORED = EventKind(
    "boot.ignored",
    Severity.INFO,
    "Firmware asks for something to boot and gets no answer: no boot is wanted now, or there is "
    "none for it.",
    Bearing.ASKS,
)
UNANSWERED = EventKind(
    "boot.unanswered",
    Severity.WARNING,
    "A machine sends a DHCP packet that cannot be answered; the text says why.",
)
UNWANTED = EventKind(
    "boot.unwanted",
    Severity.WARNING,
    "Firmware asks for something to boot although the node should be running; its agent is asked.",
    Bearing.DOUBT,
)
FIRMWARE_DIFFERS = EventKind(
    "boot.firmware-differs",
    Severity.WARNING,
    "The node boots by other firmware than the inventory says.",
)
WRONG_ARCHITECTURE = EventKind(
    "boot.wrong-architecture",
    Severity.ERROR,
    "A node's firmware is of another architecture than the inventory says: nothing is given to it.",
    Bearing.ASKS,
)
FILE_MISSING = EventKind(
    "boot.file-missing", Severity.ERROR, "A file that nodes boot from is not on the head."
)
UNDER_WAY = EventKind(
    "boot.under-way",
    Severity.DEBUG,
    "A long transfer gets on; the text says how far it is.",
    Bearing.PROGRESS,
)
SCRIPT_REFUSED = EventKind(
    "boot.script-refused",
    Severity.WARNING,
    "A boot script was refused: it was sent in this boot already, and its machine has not begun "
    "anew, or it was asked for by "
    "another MAC address than asked by DHCP.",
    security=True,
)
SCRIPT_DISPUTED = EventKind(
    "boot.script-disputed",
    Severity.ERROR,
    "The boot script was asked for again after a node had joined with it: two machines claim to be "
    "one node.",
    Bearing.DISPUTE,
    security=True,
)
BEGUN_ANEW = EventKind(
    "boot.begun-anew",
    Severity.WARNING,
    "The machine had its boot script, and its firmware asks for a boot program once more: it has "
    "begun anew, and gets the script "
    "again.",
)
OTHER_FILE = EventKind(
    "boot.other-file",
    Severity.WARNING,
    "Firmware asks for a file that it was not offered and that is not there: something else told "
    "it so.",
)
NO_DRIVER = EventKind(
    "boot.no-driver",
    Severity.ERROR,
    "The boot set of the node has no driver for the network card that it boots by: it will not "
    "come up.",
)
FROM_DISK = EventKind(
    "boot.from-disk",
    Severity.WARNING,
    "A node that shall boot from the network boots from its disk all the same: a running system "
    "asks for its address.",
)
STALLED = EventKind(
    "boot.stalled",
    Severity.WARNING,
    "A boot did not get on in time; the text says which step was the last.",
)
TRANSFER_BROKEN = EventKind(
    "boot.transfer-broken", Severity.WARNING, "The transfer of a boot file broke off."
)
DHCP_DECLINED = EventKind(
    "dhcp.declined", Severity.WARNING, "A node says that its address is used by something else."
)
DHCP_REFUSED = EventKind(
    "dhcp.refused", Severity.INFO, "A node asked for another address than its own."
)
OTHER_NETWORK = EventKind(
    "dhcp.other-network",
    Severity.WARNING,
    "A node asks for its address in another network than the one that it belongs to: a cable or a "
    "relay is not where it should be.",
)
OTHER_SERVER = EventKind(
    "dhcp.other-server",
    Severity.WARNING,
    "A DHCP server that is not expected answers a node; the setting boot.dhcp_servers names those "
    "that are.",
    security=True,
    page="beside-another-dhcp-server",
)
UNKNOWN_MAC = EventKind(
    "dhcp.unknown-mac", Severity.INFO, "A machine that is not in the inventory asks for an address."
)
PLACE_CLAIMED = EventKind(
    "dhcp.place-claimed",
    Severity.INFO,
    "A machine that is not in the inventory asks for something to boot where a node is to be, by "
    "option 82 of its packet.",
    Bearing.CLAIM,
)
POOL_FULL = EventKind(
    "dhcp.pool-full",
    Severity.WARNING,
    "A machine that is not in the inventory gets no address: all those that its network has for "
    "guests are in use.",
)
LEASES_NOT_KEPT = EventKind(
    "dhcp.leases-not-kept",
    Severity.WARNING,
    "The leases of guests cannot be written down, or read: guests are served all the same, but a "
    "restart forgets who has which.",
)
BAD_RECORD = EventKind(
    "service.bad-record",
    Severity.ERROR,
    "The boot service cannot serve a node as the inventory has it.",
)
DHCP_RECEIVE_FAILED = EventKind(
    "service.dhcp-receive-failed",
    Severity.WARNING,
    "DHCP requests cannot be read from the interface.",
)
DHCP_SEND_FAILED = EventKind(
    "service.dhcp-send-failed", Severity.WARNING, "A DHCP answer could not be sent."
)
RA_SEND_FAILED = EventKind(
    "service.ra-send-failed", Severity.WARNING, "A router advertisement could not be sent."
)
NO_IPV6 = EventKind(
    "service.no-ipv6",
    Severity.WARNING,
    "Machines cannot boot by IPv6: the head has another server for it, or no IPv6 on the "
    "interface.",
)

NO_TIME = EventKind(
    "service.no-time",
    Severity.WARNING,
    "The head does not serve the time: another server has the port, which may do it for the nodes "
    "instead.",
)
NO_DNS = EventKind(
    "service.no-dns",
    Severity.ERROR,
    "The head cannot answer DNS, though the settings say that it does: something else has its "
    "port.",
)

EVENTS: tuple[EventKind, ...] = (
    ADDRESS_TAKEN,
    OTHER_ADDRESS,
    NO_ADDRESS,
    OTHER_SERVER,
    DISCOVER_SEEN,
    OFFER_SENT,
    NBP_SENT,
    SCRIPT_SENT,
    KERNEL_SENT,
    HARDWARE_SENT,
    INITRD_SENT,
    IGNORED,
    UNANSWERED,
    UNWANTED,
    FIRMWARE_DIFFERS,
    WRONG_ARCHITECTURE,
    FILE_MISSING,
    UNDER_WAY,
    SCRIPT_REFUSED,
    SCRIPT_DISPUTED,
    BEGUN_ANEW,
    OTHER_FILE,
    NO_DRIVER,
    FROM_DISK,
    STALLED,
    TRANSFER_BROKEN,
    DHCP_DECLINED,
    DHCP_REFUSED,
    OTHER_NETWORK,
    UNKNOWN_MAC,
    PLACE_CLAIMED,
    POOL_FULL,
    DISCOVERING,
    DISCOVERY_FULL,
    DISCOVERY_FAILED,
    DISCOVERY_LOST,
    LEASES_NOT_KEPT,
    BAD_RECORD,
    NO_DNS,
    NO_TIME,
    DHCP_RECEIVE_FAILED,
    DHCP_SEND_FAILED,
    RA_SEND_FAILED,
    NO_IPV6,
)
