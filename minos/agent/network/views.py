"""How interfaces are, as the head is told and people read it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minos.agent.network.steps import Seen, link_of
from minos.agent.network.wanted import Interface, Interfaces
from minos.agent.network.wire import Link

UP = "up"
DOWN = "down"
NO_CARRIER = "no carrier"
NO_PARTNER = "no partner"
APART = "apart"
MISSING = "missing"

View = Mapping[str, Any]


def views(want: Interfaces, seen: Seen, troubles: Mapping[str, str]) -> list[View]:
    """Each interface that is wanted, with what is wrong with it, "" for nothing."""
    absent = (Interface(name) for name in troubles if name not in want)
    return [
        {**_view(one, want, seen), "trouble": troubles.get(one.name, "")}
        for one in (*want.values(), *absent)
    ]


def _view(one: Interface, want: Interfaces, seen: Seen) -> dict[str, Any]:
    link = link_of(one, seen)
    view: dict[str, Any] = {
        "name": one.name,
        "kind": one.kind,
        "state": state(link),
        "mac": one.mac,
        "mtu": 0,
        "addresses": [],
        "routes": [],
        "legs": [],
    }
    if link is not None:
        view |= {
            "mac": one.mac or link.mac,
            "mtu": link.mtu,
            "addresses": sorted(seen.addresses.get(link.name, ())),
            "routes": sorted(f"{to} via {by}" for name, to, by in seen.routes if name == link.name),
        }
    if one.bond is not None:
        view["legs"] = [
            {
                "name": leg,
                "state": leg_state(link, link_of(want[leg], seen) if leg in want else None),
            }
            for leg in one.bond.legs
        ]
    return view


def state(link: Link | None) -> str:
    """How an interface is."""
    return MISSING if link is None else DOWN if not link.up else UP if link.carrier else NO_CARRIER


def leg_state(bond: Link | None, leg: Link | None) -> str:
    """How a leg of a bond is. By 802.3ad it is of use while it is in the aggregator that is in use,
    and that has a partner (IEEE 802.1AX section 6.3)."""
    if leg is None:
        return MISSING
    if bond is None or leg.master != bond.index:
        return APART
    if not leg.leg_up or not leg.carrier:
        return NO_CARRIER
    if bond.mode == 4 and not (bond.partner and bond.aggregator == leg.leg_aggregator):
        return NO_PARTNER
    return UP


def differences(was: View, now: View) -> list[str]:
    """What of an interface has changed, for people."""
    differing = [
        f"{key} {was.get(key)} -> {now.get(key)}"
        for key in ("state", "mtu", "mac")
        if was.get(key) != now.get(key)
    ]
    for key in ("addresses", "routes"):
        old, new = (list(map(str, view.get(key) or ())) for view in (was, now))
        differing += [f"{item} is gone" for item in old if item not in new] + [
            f"{item} has come" for item in new if item not in old
        ]
    legs = [
        {str(leg["name"]): str(leg["state"]) for leg in view.get("legs") or ()}
        for view in (was, now)
    ]
    differing += [
        f"leg {name} {legs[0].get(name)} -> {state}"
        for name, state in legs[1].items()
        if legs[0].get(name) != state
    ]
    return differing
