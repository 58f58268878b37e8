"""What is fuzzed, by name."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fuzz.harness import Open
from tests.fuzz.targets import (
    archives,
    console,
    desired,
    dhcp,
    dhcp6,
    dns,
    inventory,
    joined,
    manifests,
    nodeapi,
    people,
    ranges,
    redfish,
    rmcp,
    spec,
    sync,
    tftp,
    tpm,
)

TARGETS: Mapping[str, Open] = {
    "dhcp": dhcp.target,
    "dhcp6": dhcp6.target,
    "dns": dns.query,
    "dns-answer": dns.answer,
    "tftp": tftp.target,
    "tftp-server": tftp.server,
    "sync": sync.target,
    "rmcp": rmcp.target,
    "console": console.target,
    "inventory": inventory.target,
    "ranges": ranges.target,
    "join": joined.join,
    "events": joined.events,
    "event-rates": joined.rates,
    "image-spec": spec.target,
    "node-api": nodeapi.target,
    "desired": desired.target,
    "join-answer": desired.answer,
    "manifests": manifests.target,
    "drivers": desired.drivers,
    "redfish": redfish.target,
    "archive": archives.archive,
    "container-yaml": archives.container,
    "entry": people.entry,
    "websocket": people.frames,
    "tpm-log": tpm.logs,
    "tpm-quote": tpm.quotes,
    "tpm-answer": tpm.answers,
}
