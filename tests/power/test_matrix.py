"""Orders by a whole head to BMCs with quirks, all at once: what was accepted ends done, failed in
words, or refused.

ipmi_sim and sushy-emulator, each with a quirk in front of it or behind it; the machines are
pretended, and what they really are is compared with what people are told.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import pytest

from tests.support.bmc_quirks import Manner
from tests.support.machineroom import Bay, Step
from tests.support.powersite import Order, Outcome, PowerSite

pytestmark = [pytest.mark.root, pytest.mark.waits]

LIMIT_S = 300.0
"""No order may take longer, whatever its BMC does."""
Kind = Literal["ipmi", "redfish"]
ORDERS: tuple[Order, ...] = ("cycle", "off", "on")
KINDS: tuple[Kind, ...] = ("ipmi", "redfish")
DEATHS: tuple[Step, ...] = (
    "read",
    "off",
    "off-lost",
    "read-off",
    "boot",
    "on",
    "on-lost",
    "read-on",
)
_numbers = itertools.count()


@dataclass
class Row:
    """A node of the matrix: its bay, what is ordered of it, and how that may end. `starts_off`: it
    is off before."""

    bay: Bay
    order: Order | None
    may: tuple[str, ...] = ("done",)
    force: bool = False
    starts_off: bool = False


def bay(name: str, kind: Kind, **quirk: object) -> Bay:
    """A bay with the next number."""
    return Bay(f"{name}-{kind}", kind, next(_numbers), **quirk)  # type: ignore[arg-type]


def rows() -> Iterator[Row]:
    """The matrix."""
    either = ("done", "failed")
    for kind in KINDS:
        for order in ORDERS:
            on = order == "on"
            yield Row(bay(f"prompt-{order}", kind), order, starts_off=on)
            yield Row(
                bay(f"slow-{order}", kind, manner=Manner(answer_s=10.0)), order, starts_off=on
            )
            yield Row(bay(f"minute-{order}", kind, acts_s=60.0), order, starts_off=on)
            yield Row(bay(f"flaps-{order}", kind, manner=Manner(flaps_s=4.0)), order, starts_off=on)
            yield Row(
                bay(f"single-{order}", kind, manner=Manner(sessions=1), rival_s=4.0),
                order,
                starts_off=on,
            )
        if (
            kind == "redfish"
        ):  # with IPMI each question is six packets: a cycle would take six minutes
            yield Row(
                bay("patient-cycle", kind, manner=Manner(answer_s=10.0), timeout_s=70.0), "cycle"
            )
        else:
            yield Row(bay("patient-off", kind, manner=Manner(answer_s=4.0), timeout_s=40.0), "off")
        yield Row(bay("slow-force", kind, manner=Manner(answer_s=6.0)), "cycle", force=True)
        yield Row(bay("minute-force", kind, acts_s=20.0), "cycle", force=True)
        for order in ORDERS[:2]:
            yield Row(bay(f"says-on-{order}", kind, lies="ON"), order, ("failed",))
            yield Row(
                bay(f"says-off-{order}", kind, lies="OFF"),
                order,
                either if order == "cycle" else ("done",),
            )
            yield Row(
                bay(f"deaf-says-off-{order}", kind, lies="OFF", acts_s=1e6), order, ("failed",)
            )
        yield Row(
            bay("deaf-says-off-force", kind, lies="OFF", acts_s=1e6),
            "cycle",
            ("failed",),
            force=True,
        )
        yield Row(bay("says-on-on", kind, lies="ON"), "on", either, starts_off=True)
        yield Row(bay("bystander", kind, lies="OFF"), None)
        for step in DEATHS:
            yield Row(bay(f"dies-in-{step}", kind, dies_in=step), "cycle")


@dataclass
class Played:
    """What happened. Times are of time.monotonic."""

    armed: float = 0.0
    alone: dict[str, float] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


def seconds_to_command(row: Row, since: float) -> float:
    """From an order until its BMC was told something."""
    return next((at for at, _ in row.bay.commands if at >= since), float("inf")) - since


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """The whole matrix, once."""
    found = Played(rows={row.bay.name: row for row in rows()})
    prompt = [name for name in found.rows if name.startswith("prompt-cycle")]
    with PowerSite(
        tmp_path_factory.mktemp("matrix"),
        [r.bay for r in found.rows.values()],
        [n for n, r in found.rows.items() if r.starts_off],
    ) as site:
        began, since = time.monotonic(), site.newest()
        assert not site.order("cycle", prompt)
        site.follow(dict.fromkeys(prompt, "cycle"), since, 120.0)
        found.alone = {name: seconds_to_command(found.rows[name], began) for name in prompt}
        found.armed, since = time.monotonic(), site.newest()
        site.room.arm(*found.rows)
        orders: dict[str, Order] = {}
        for order, force in (*((order, False) for order in ORDERS), (ORDERS[0], True)):
            names = [n for n, r in found.rows.items() if (r.order, r.force) == (order, force)]
            refusal = site.order(order, names, force=force)
            if refusal:
                found.outcomes |= {n: Outcome("refused", 0.0, refusal) for n in names}
            else:
                orders |= dict.fromkeys(names, order)
        found.outcomes |= site.follow(orders, since, LIMIT_S)
        found.left = {name: view["status"] for name, view in site.nodes().items()}
        for name, outcome in sorted(found.outcomes.items(), key=lambda item: item[1].seconds):
            print(f"{name:32} {outcome.how:10} {outcome.seconds:6.1f} s  {outcome.reason[:150]}")
        yield found


ROWS = [(row.bay.name, row.may, row.order) for row in rows() if row.order is not None]


@pytest.mark.parametrize(("name", "may", "order"), ROWS, ids=[name for name, _, _ in ROWS])
def test_an_order_ends_and_is_true(
    played: Played, name: str, may: tuple[str, ...], order: Order
) -> None:
    outcome, machine = played.outcomes[name], played.rows[name].bay
    assert outcome.how in may, outcome
    if outcome.how == "done":
        assert machine.on is (order != "off")
        assert order != "cycle" or machine.was_off(played.armed), "it says that it was done"
    else:
        assert outcome.reason and outcome.reason.partition(" (hint:")[0][-40:] in outcome.explain


def test_nothing_is_done_to_a_healthy_node_whose_bmc_says_that_it_is_off(played: Played) -> None:
    for kind in KINDS:
        machine = played.rows[f"bystander-{kind}"].bay
        assert machine.on and machine.switched[-1][0] < played.armed
        assert not [c for c in machine.commands if c[0] > played.armed]
        assert played.left[machine.name] == "converged"


def test_each_bmc_that_was_to_die_died(played: Played) -> None:
    assert {n: r.bay.deaths for n, r in played.rows.items() if n.startswith("dies")} == {
        f"dies-in-{step}-{kind}": 1 for step in DEATHS for kind in KINDS
    }


def test_one_session_at_a_time_was_enough(played: Played) -> None:
    """A rival's session was in the way of one of each kind at least; on a slow machine it may be
    over before we come."""
    for kind in ("ipmi", "redfish"):
        assert any(
            r.bay.manner.refused
            for n, r in played.rows.items()
            if n.startswith("single") and n.endswith(kind)
        ), f"the rival was in nobody's way by {kind}"


def test_a_slow_bmc_slows_no_other(played: Played) -> None:
    for name, alone in played.alone.items():
        among = seconds_to_command(played.rows[name], played.armed)
        assert among < 3 * alone + 20.0, (
            name,
            alone,
            among,
        )  # behind one slow BMC in a queue it would be a minute
