"""The nodes' BMCs: reached, logged in, their clocks, and what they boot. The power module looks;
here it is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from layercake.base.text import count_of
from layercake.check.finding import Finding, check, error, ok, warning
from layercake.check.resources import span
from layercake.check.site import CheckedNode, Site

CLOCK_S = 120.0
Row = dict[str, Any]

_TROUBLES: tuple[tuple[str, Callable[..., Finding], str, str], ...] = (
    (
        "no-secret",
        error,
        "the passwords of their BMCs cannot be read",
        "see bmc.password in the inventory",
    ),
    ("no-bmc", error, "have no BMC that can be used", "correct their bmc in the inventory"),
    (
        "unreachable",
        error,
        "their BMCs do not answer",
        "look at bmc.address, cable and power, and at the route there; bmc.timeout_s gives a slow "
        "one more time",
    ),
    (
        "login-refused",
        error,
        "their BMCs do not take user or password",
        "correct bmc.username and bmc.password",
    ),
    (
        "failed",
        error,
        "their BMCs answer with errors",
        "see `layercake power status`, and the how-to on BMC troubles",
    ),
    (
        "unasked",
        warning,
        "their BMCs could not be asked in time",
        "too many others do not answer; mend those first",
    ),
    ("busy", warning, "their BMCs are busy with other operations", "look again later"),
)
"""What may have come of a look (powerman.inspect.inspection.InspectedBmc), how bad that is, and
what to do."""


@check("bmc")
def bmc(site: Site) -> list[Finding]:
    """Each node's BMC: whether it answers and takes the login, by the protocol and the password of
    the inventory. All at once, in 15 s at most."""
    if not site.nodes:
        return [
            ok(
                "there are no nodes yet; --inventory FILE looks at those of an inventory that is "
                "not applied"
            )
        ]
    rows = site.look()
    findings = []
    for result, make, text, hint in _TROUBLES:
        some = [row for row in rows if row["result"] == result]
        if some:
            why = next((row["why"] for row in some if row["why"]), "")
            findings.append(
                make(f"{text}: {why}" if why else text, hint, [row["name"] for row in some])
            )
    well, by_hand = (sum(row["result"] == result for row in rows) for result in ("ok", "by-hand"))
    return findings or [
        ok(
            f"all {well} answer and take the login"
            + (f"; nodes without one: {by_hand}" if by_hand else "")
        )
    ]


def _well(site: Site) -> list[Row]:
    return [row for row in site.look() if row["result"] == "ok"] if site.nodes else []


@check("bmc-clock")
def bmc_clock(site: Site) -> list[Finding]:
    """The clocks of the BMCs against the head's: their event logs are dated by them. More than two
    minutes are told."""
    rows = _well(site)
    unset = [row["name"] for row in rows if row["clock_s"] is None]
    off = sorted(
        (row for row in rows if abs(row["clock_s"] or 0.0) > CLOCK_S),
        key=lambda row: -abs(row["clock_s"]),
    )
    findings = []
    if off:
        worst = off[0]
        findings.append(
            warning(
                f"their clocks are wrong; that of {worst['name']} is {span(worst['clock_s'])}",
                "let them ask an NTP server, or `ipmitool sel time set now`; whole hours: they "
                "keep local time",
                [row["name"] for row in off],
            )
        )
    if unset:
        findings.append(
            warning(
                "their clocks are not set, or cannot be read", "let them ask an NTP server", unset
            )
        )
    return findings or [ok(f"right to two minutes: {count_of(len(rows), 'clock')}")]


@check("bmc-boot")
def bmc_boot(site: Site) -> list[Finding]:
    """What the BMCs say of the next boot: whether the machine can be told to boot by what the
    inventory says (bmc.boot), in its firmware mode (bios, uefi)."""
    rows = _well(site)
    nodes = {node.name: node for node in site.nodes}
    findings = []
    deaf = [row["name"] for row in rows if not row["network"]]
    if deaf:
        findings.append(
            error(
                "their BMCs do not offer what the inventory says that they boot by (bmc.boot)",
                "see the BMC's version, and the machine's boot order",
                deaf,
            )
        )
    for mode in ("bios", "uefi"):
        findings += _boot_mode([row for row in rows if _wants(nodes, row, mode)], mode)
    return findings or [ok(f"{len(rows)} can be told what to boot by")]


def _boot_mode(rows: list[Row], mode: str) -> Iterator[Finding]:
    """The machines that are to boot in this firmware mode, and cannot, or are not set to it."""
    unable = [row["name"] for row in rows if row["modes"] and mode not in row["modes"]]
    if unable:
        yield error(
            f"their BMCs cannot boot them by {mode}, as the inventory says",
            "correct `firmware`",
            unable,
        )
    other = [
        row["name"] for row in rows if row["mode"] not in ("", mode) and row["name"] not in unable
    ]
    if other:
        yield warning(
            f"the inventory says {mode}, and their BMCs are set to the other mode",
            "correct `firmware`, or the boot mode in the machine's set-up",
            other,
        )


def _wants(nodes: dict[str, CheckedNode], row: Row, mode: str) -> bool:
    node = nodes.get(row["name"])
    return node is not None and node.firmware == mode
