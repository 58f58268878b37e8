"""All checks, and how they are carried out: each in a thread of its own, as most of them wait. One
more is one more function, named in CHECKS."""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from layercake.base.text import nearest
from layercake.check.bmcs import bmc, bmc_boot, bmc_clock
from layercake.check.cards import cards
from layercake.check.finding import Check, Result, error
from layercake.check.heads import heads
from layercake.check.network import interface, routing
from layercake.check.resources import certificates, disk, limits, reason, time
from layercake.check.serving import http_files, packet_filter, tftp
from layercake.check.site import Site
from layercake.check.wire.addresses import addresses
from layercake.check.wire.dhcp import dhcp
from layercake.check.wire.lldp import lldp
from layercake.kraken.errors import InputError, LayercakeError

log = logging.getLogger("layercake.check")

CHECKS: tuple[Check, ...] = (
    interface,
    addresses,
    dhcp,
    lldp,
    tftp,
    http_files,
    packet_filter,
    bmc,
    bmc_clock,
    bmc_boot,
    cards,
    routing,
    time,
    certificates,
    disk,
    limits,
    heads,
)
"""In the order in which they are told."""


def select_checks(only: Collection[str]) -> tuple[Check, ...]:
    """The checks of these names, all without any. Raises InputError for a name that is none's."""
    known = {check.name for check in CHECKS}
    for name in only:
        if name not in known:
            raise InputError(
                f"cannot check {name!r}: there is no such check", hint=nearest(name, known)
            )
    return tuple(check for check in CHECKS if not only or check.name in only)


def run_checks(site: Site, checks: Collection[Check]) -> list[Result]:
    """What the checks find, in their order. That one cannot be carried out is an error of its own,
    and stops no other."""

    def one(check: Check) -> list[Result]:
        try:
            findings = check.look(site)
        except (LayercakeError, OSError) as failed:
            findings = [reason(failed)]
        except Exception:  # what came from the network, or a bug: the other checks are worth having
            log.exception("the check %s has failed", check.name)
            findings = [
                error(
                    "this check has failed; its log is on standard error",
                    "it is a bug of Layercake: please report it",
                )
            ]
        return [Result(check.name, finding) for finding in findings]

    with ThreadPoolExecutor(max(1, len(checks))) as threads:
        return [result for results in threads.map(one, checks) for result in results]
