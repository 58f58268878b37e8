"""The datagrams of a simulated fleet."""

from __future__ import annotations

import time

from layercake.sim.fleet.clockwork import Clockwork
from layercake.sim.fleet.ether import Ether
from layercake.sim.fleet.faults import Faults, NodeFaults
from layercake.sim.fleet.machine import Machine, MachineIdentity


async def test_a_datagram_that_the_kernel_does_not_take_is_lost_and_ends_nothing() -> None:
    machine = Machine(MachineIdentity("n0", "0", "", "127.0.0.1"), bytes(16), NodeFaults())
    ether = Ether(
        {}, Faults(), Clockwork(time.monotonic), lambda machine: False, lambda head: None, own=False
    )
    ether.open(("255.255.255.255",), 9)  # refused to a socket that was not made for broadcasts
    try:
        ether.send(machine, b"HELLO")
    finally:
        ether.close()
    assert (machine.sent, ether.lost) == (1, 1)
