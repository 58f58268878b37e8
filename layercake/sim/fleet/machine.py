"""One simulated machine: what it is, its power, and what it is at."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass

from layercake.sim.fleet.agent import Agent
from layercake.sim.fleet.faults import NodeFaults


class Phase(enum.Enum):
    """What a machine is at."""

    OFF = "off"
    FIRMWARE = "in its firmware"
    KERNEL = "loading its kernel"
    RUNNING = "running"
    HUNG = "hangs"


@dataclass(frozen=True, slots=True)
class MachineIdentity:
    """Who a machine is: its name, its id, the card that it boots by, its address, its BMC, its
    firmware, and the groups that it is in."""

    name: str
    id: str
    mac: str
    ip: str
    bmc: str = ""
    firmware: str = "bios"
    arch: str = "x86_64"
    groups: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Machine:
    """One machine. `life` counts how often it was started; `dark`: neither it nor its BMC is heard;
    `sent` and `heard` count its datagrams, each way; `boot` is the task of the boot that goes on,
    `agent` what has joined. `dies_after` is in how many seconds of its next life it hangs, None if
    it does not. `head` is the address of the head that it heard last, "" for the first one."""

    identity: MachineIdentity
    node: bytes
    node_faults: NodeFaults
    phase: Phase = Phase.OFF
    life: int = 0
    dark: bool = False
    sent: int = 0
    heard: int = 0
    boot: asyncio.Task[None] | None = None
    agent: Agent | None = None
    dies_after: float | None = None
    head: str = ""

    def __post_init__(self) -> None:
        self.dies_after = self.node_faults.dies_after

    @property
    def on(self) -> bool:
        """Whether it has power."""
        return self.phase is not Phase.OFF

    def off(self) -> None:
        """The power goes: whatever ran there is gone."""
        self.life += 1
        self.phase = Phase.OFF
        self.agent = None
        if self.boot is not None:
            self.boot.cancel()
            self.boot = None

    def start(self, boot: Callable[[Machine], asyncio.Task[None]]) -> None:
        """It begins anew, with power."""
        self.off()
        self.phase = Phase.FIRMWARE
        self.boot = boot(self)

    def hang(self) -> None:
        """It stands still, with power."""
        self.off()
        self.phase = Phase.HUNG
