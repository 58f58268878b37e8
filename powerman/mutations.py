"""What powerman does to a node's state: the declarations, each above the handler that carries it out.

A BMC that says yes has only taken the command. Every handler reads the power back until it is what was asked for, or says that it
is not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from layercake.kraken.backoff import backoff
from layercake.kraken.errors import OperationFailed, Unreachable
from layercake.kraken.mutation import mutation
from layercake.kraken.variables import UNKNOWN, Variable
from layercake.moduleapi.service import MutationRequest
from powerman import events
from powerman.bmc import ManagedBmc
from powerman.driver import PowerState, Unsupported

if TYPE_CHECKING:
    from powerman.service import PowerService

Answer = TypeVar("Answer")

POWER = Variable("power", (UNKNOWN, "OFF", "ON", "HANG"), "electrical power, as the BMC says; HANG is on and of no use")

VARIABLES = (POWER,)

_FIRST_LOOK_S, _LOOK_GROWTH, _LAST_LOOK_S = 0.1, 1.6, 1.0
_FIRST_REST_S, _LAST_REST_S = 0.5, 4.0
_SOFT_SHARE = 0.6       # of the time that is left goes to the system's own shutdown; the rest is for pulling the plug


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a mutation, inside a turn at the BMC. `until` is when to give up, in seconds of the BMC's clock."""

    bmc: ManagedBmc
    until: float
    params: Mapping[str, Any]


@mutation("power-discover", changes={"power": (UNKNOWN, "OFF")}, timeout=15.0)
async def power_discover(service: PowerService, request: MutationRequest) -> Mapping[str, str]:
    """Ask the BMC whether the node is on."""
    async with service.attempt(request) as attempt:
        return _found(await attempt.bmc.read())


@mutation("power-on", changes={"power": ("OFF", "ON")}, timeout=50.0, on_timeout=("power", "HANG"), guarded=True)
async def power_on(service: PowerService, request: MutationRequest) -> Mapping[str, str]:
    """Power the node on, to boot from the network."""
    async with service.attempt(request) as attempt:
        bmc = attempt.bmc
        if await _patient(attempt, bmc.read) is PowerState.OFF:
            try:
                await _patient(attempt, lambda: bmc.ask(bmc.driver.boot_network))
            except OperationFailed as error:  # many machines boot from the network anyway; if not, the boot's own timeout tells
                bmc.note(events.BOOT_DEVICE, f"the next boot may not be from the network: {error}")
            await _patient(attempt, lambda: bmc.ask(bmc.driver.on))
        return await _becomes(attempt, PowerState.ON, "power on")


@mutation("power-off", changes={"power": ("ON", "OFF")}, excludes={"run": "SYNC", "busy": "BUSY"}, timeout=30.0,
          on_timeout=("power", "HANG"), guarded=True)
async def power_off(service: PowerService, request: MutationRequest) -> Mapping[str, str]:
    """Power the node off; with parameter soft, let its system shut down first."""
    async with service.attempt(request) as attempt:
        if attempt.params.get("soft") and await _soft_off(attempt):
            return _found(PowerState.OFF)
        return await _hard_off(attempt)


@mutation("power-reset", changes={"power": ("HANG", "OFF")}, timeout=30.0, guarded=True)
async def power_reset(service: PowerService, request: MutationRequest) -> Mapping[str, str]:
    """Power off a node that hangs."""
    async with service.attempt(request) as attempt:
        return await _hard_off(attempt)


async def _hard_off(attempt: Attempt) -> Mapping[str, str]:
    """A BMC that says OFF is told all the same: it may be wrong, and a machine that is off does not mind."""
    bmc = attempt.bmc
    if await _patient(attempt, bmc.read) is PowerState.ON:
        await _patient(attempt, lambda: bmc.ask(bmc.driver.off))
    else:
        with contextlib.suppress(OperationFailed):
            await bmc.ask(bmc.driver.off)
    return await _becomes(attempt, PowerState.OFF, "power off")


async def _patient(attempt: Attempt, operation: Callable[[], Awaitable[Answer]]) -> Answer:
    """What the BMC answers. Silence is waited out while there is time for another try: BMCs flap, and start anew."""
    bmc, failures = attempt.bmc, 0
    while True:
        try:
            return await operation()
        except Unreachable as silence:
            bmc.missed(silence)
            failures += 1
            pause = backoff(failures, _FIRST_REST_S, _LAST_REST_S)
            if bmc.clock.now() + pause + bmc.spec.timeout_s > attempt.until:
                raise
        await bmc.clock.sleep(pause)


async def _soft_off(attempt: Attempt) -> bool:
    """Whether the system shut down by itself in its share of the time."""
    bmc = attempt.bmc
    now = bmc.clock.now()
    try:
        await bmc.ask(lambda: bmc.driver.off(soft=True))
        await _becomes(Attempt(bmc, now + (attempt.until - now) * _SOFT_SHARE, attempt.params), PowerState.OFF, "shut down")
    except Unsupported:
        return False
    except OperationFailed as error:
        bmc.note(events.SOFT_OFF, f"pulling the plug: {error.message}")
        return False
    return True


async def _becomes(attempt: Attempt, wanted: PowerState, action: str) -> Mapping[str, str]:
    """Reads back until the state is `wanted`. BMCs go quiet for a moment after a power action, so silence is waited out.

    Raises OperationFailed if the BMC goes on saying otherwise, Unreachable if it says nothing any more.
    """
    bmc, pause = attempt.bmc, _FIRST_LOOK_S
    while True:
        silence: Unreachable | None = None
        try:
            if await bmc.read() is wanted:
                return _found(wanted)
        except Unreachable as error:
            silence = error
        if bmc.clock.now() + pause > attempt.until:
            break
        await bmc.clock.sleep(pause)
        pause = min(_LAST_LOOK_S, pause * _LOOK_GROWTH)
    if silence is not None:
        raise silence
    says = bmc.power.value if bmc.power else UNKNOWN
    raise OperationFailed(f"cannot {action} {bmc.spec.name}: the BMC at {bmc.spec.where} took the command, and still says {says}",
                          hint="look at the machine, its power supply and its BMC's event log")


def _found(state: PowerState) -> Mapping[str, str]:
    return {"power": state.value}


MUTATIONS = (power_discover, power_on, power_off, power_reset)
