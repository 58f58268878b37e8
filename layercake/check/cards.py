"""The nodes' network cards, as they reported them, against the boot sets that they boot next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from layercake.base.text import grouped
from layercake.check.finding import Finding, check, error, ok, warning
from layercake.check.site import CheckedNode, Site
from minos.build.kernel import plain
from minos.build.profiles import BASE
from minos.build.sets import load


def lacking(nodes: Iterable[CheckedNode], modules: Iterable[str]) -> dict[str, list[str]]:
    """{driver of the boot card: nodes that have it}, of those that are not among the modules."""
    have = {*modules, *BASE}
    return grouped(
        (card["driver"], node.name)
        for node in nodes
        for card in node.cards
        if card["mac"] in node.macs and card["driver"] and plain(card["driver"]) not in have
    )


@check("cards")
def cards(site: Site) -> list[Finding]:
    """The network cards that nodes have reported: whether the boot set that each boots next has the
    driver of the card that it boots by, and whether a card has no driver now. Needs a head that
    runs."""
    if site.api is None:
        return [ok("nodes report their cards to a head that runs; this one does not")]
    findings = _without_driver_in_set(site, site.api.get("/v1/boot")["sets"])
    findings += _without_driver_now(site)
    known = sum(bool(node.cards) for node in site.nodes)
    return findings or [
        ok(f"{known} of {len(site.nodes)} nodes have reported their cards; all have drivers")
    ]


def _without_driver_in_set(site: Site, sets: list[dict[str, Any]]) -> list[Finding]:
    """The boot sets that lack the driver of a card that a node boots by, of those that the API
    lists."""
    findings = []
    seen = {node.name: node for node in site.nodes}
    for listed in sets:
        boot = load(site.data_dir / "boot", listed["name"])
        if boot.profile is None:
            continue  # of an older Layercake: it does not say what is in it
        nodes = [seen[name] for name in listed["boot"] if name in seen]
        drivers = lacking(nodes, map(str, boot.about.get("modules") or ()))
        for driver, names in sorted(drivers.items()):
            findings.append(
                error(
                    f"boot set {boot.name}, which they boot next, has no driver {driver} for the "
                    "card that they boot by",
                    f"`layercake profile build {boot.profile.name} --modules ...,{plain(driver)}`, "
                    "or by a kernel that has it",
                    names,
                )
            )
    return findings


def _without_driver_now(site: Site) -> list[Finding]:
    """The cards that no driver runs, by what they are."""
    without: dict[str, list[str]] = {}
    for node in site.nodes:
        for card in node.cards:
            if not card["driver"]:
                needs = f", which needs {' or '.join(card['absent'])}" if card["absent"] else ""
                without.setdefault(f"{card['id']}{needs}", []).append(node.name)
    return [
        warning(f"a network card has no driver: {what}", "see the how-to on boot profiles", names)
        for what, names in sorted(without.items())
    ]
