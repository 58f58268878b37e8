"""Orders outlive the processes that carry them out: kill -9 of the power module and of the head, in
the middle of each step."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import pytest

from tests.support.machineroom import Bay
from tests.support.powersite import Order, PowerSite

pytestmark = [pytest.mark.root, pytest.mark.waits]

LIMIT_S = 240.0


@pytest.mark.parametrize("victim", ["powerman", "head"])
def test_an_order_outlives(tmp_path: Path, victim: Literal["powerman", "head"]) -> None:
    kinds: tuple[Literal["ipmi", "redfish"], ...] = ("ipmi", "redfish")
    bays = [
        Bay(f"{order}-{kind}", kind, number + 3 * i, acts_s=8.0)
        for number, order in enumerate(("cycle", "force", "off"))
        for i, kind in enumerate(kinds)
    ]
    orders: dict[str, Order] = {
        b.name: "off" if b.name.startswith("off") else "cycle" for b in bays
    }

    def told(site: PowerSite, want: str, since: float) -> bool:
        return all(
            any(at > since and word == want for at, word in b.commands)
            for b in bays
            if want == "off" or not b.name.startswith("off")
        )

    with PowerSite(tmp_path / "site", bays) as site:
        site.room.arm(*orders)
        began, since = time.monotonic(), site.newest()
        for order, text, force in (
            ("cycle", "cycle-ipmi,cycle-redfish", False),
            ("off", "off-ipmi,off-redfish", False),
            ("cycle", "force-ipmi,force-redfish", True),
        ):
            assert not site.order(
                "off" if order == "off" else "cycle", text.split(","), force=force
            )
        for want in ("off", "on"):
            site.wait(
                f"all BMCs were told {want}",
                lambda want=want: told(site, want, began),  # type: ignore[misc]
                LIMIT_S,
            )
            if victim == "powerman":
                site.kill_powerman()
            else:
                site.kill_head()
                site.start_head()
        known = {b.name: b for b in bays}
        outcomes = site.follow(
            orders,
            since,
            LIMIT_S,
            was_off=lambda name: victim == "head" and known[name].was_off(began),
        )
        for b in bays:
            assert outcomes[b.name].how == "done", outcomes[b.name]
            assert b.was_off(began) and b.on is (orders[b.name] == "cycle")
            assert len([1 for at, on in b.switched if at > began and not on]) == 1, (
                "it went off once"
            )
