"""What powerman does to a node's state: the declarations, each above the handler that carries it
out.

A BMC that says yes has only taken the command. Every handler reads the power back until it is what
was asked for, or says that it is not.
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
from powerman.driver import NoSession, NotNow, PowerDriver, PowerState, Unsupported
from powerman.health import VALUES

if TYPE_CHECKING:
    from powerman.medium import (
        MediumServer,
    )  # brings a web server, 0.2 s, to all who only look at what powerman declares
    from powerman.service import PowerService

Answer = TypeVar("Answer")

POWER = Variable(
    "power",
    (UNKNOWN, "OFF", "ON", "HANG"),
    "electrical power, as the BMC says; HANG is on and of no use",
)

HEALTH = Variable(
    "bmc-health", VALUES, "the machine's health, as its BMC says; kept while that is silent"
)

VARIABLES = (POWER, HEALTH)

PERSON_S = 10 * 365 * 86400.0
"""How long a person is waited for: as good as for ever, and a number that can be sent."""
ROOM = 6.0
"""A step with a BMC that is slow may take so many times longer than with another one."""
# per second that the BMC takes for an answer: ROOM times longer with one of 2.5 s, and of 10 s
_SLOWNESS = 2.0
_PROMPT_S = 1.0  # a BMC that takes longer for an answer is asked nothing that can be left out
_FIRST_LOOK_S = 0.1
_LOOK_GROWTH = 1.6
_LAST_LOOK_S = 1.0
_FIRST_REST_S = 0.5
_LAST_REST_S = 4.0
_LONGEST_REST_S = 8.0  # also where a BMC asks for more: most are there long before
# of the time that is left goes to the system's own shutdown; the rest is for pulling the plug
_SOFT_SHARE = 0.6
# of an attempt's time is a boot device waited for that the BMC cannot set now: it can be left out
_BOOT_DEVICE_SHARE = 0.5


@dataclass(slots=True)
class Attempt:
    """One attempt at a mutation, inside a turn at the BMC. It began at `since`, by the BMC's clock,
    and takes `usual_s` at most with a BMC that answers at once, and `most_s` with any. `not_now_s`
    is for how long the BMC has said that it cannot do it now."""

    bmc: ManagedBmc
    since: float
    usual_s: float
    most_s: float
    params: Mapping[str, Any]
    not_now_s: float = 0.0

    @property
    def until(self) -> float:
        """When to give up, by how slow the BMC has shown itself by now."""
        usual = self.usual_s * slowness(self.bmc.driver) + self.not_now_s
        return self.since + min(usual, self.most_s)


def slowness(driver: PowerDriver) -> float:
    """How many times longer than usual a step may take with this BMC."""
    return min(ROOM, 1.0 + _SLOWNESS * driver.answer_s)


@mutation("power-discover", changes={"power": (UNKNOWN, "OFF")}, timeout=15.0)
async def power_discover(service: PowerService, request: MutationRequest) -> Mapping[str, str]:
    """Ask the BMC whether the node is on."""
    async with service.attempt(request) as attempt:
        heard = attempt.bmc.driver.answer_s > 0  # one that never was is held for dead at once
        return _power_value(await _patient(attempt, attempt.bmc.read, silence=heard))


@mutation(
    "power-on",
    changes={"power": ("OFF", "ON")},
    timeout=50.0,
    on_timeout=("power", "HANG"),
    guarded=True,
)
async def power_on(service: PowerService, request: MutationRequest) -> Mapping[str, str]:
    """Power the node on, to boot from the network, by the boot medium or by a URI."""
    async with service.attempt(request) as attempt:
        bmc = attempt.bmc
        if await _patient(attempt, bmc.read) is PowerState.OFF:
            device_kept = False
            if bmc.spec.boot == "media":
                await _insert(attempt, service.medium_server)
            elif bmc.spec.boot == "uri":
                await _set_uri(attempt)
            else:
                device_kept = await _next_boot(attempt)
            await _patient(attempt, lambda: bmc.run(bmc.driver.on))
            state = await _becomes(attempt, PowerState.ON, "power on")
            if device_kept and bmc.driver.answer_s < _PROMPT_S:
                await _remind(attempt)
            return state
        return await _becomes(attempt, PowerState.ON, "power on")


async def _next_boot(attempt: Attempt) -> bool:
    """Has the next boot be from the network; whether the BMC says that it will be.

    Many machines boot from the network anyway, so one whose BMC cannot see to it is switched on all
    the same; if it does not, the boot's own time limit tells. A person is told once.
    """
    bmc = attempt.bmc
    why = f"the BMC at {bmc.spec.where} takes the boot device and forgets it"
    until = attempt.since + (attempt.until - attempt.since) * _BOOT_DEVICE_SHARE
    try:
        for _ in range(2):
            await _patient(attempt, lambda: bmc.run(bmc.driver.boot_network), not_now_until=until)
            device_kept = await _boot_device_kept(attempt)
            if device_kept is not False:
                return device_kept is True
    except (OperationFailed, NotNow) as error:
        why = error.message
    bmc.tell_once(
        events.BOOT_DEVICE,
        f"the next boots may not be from the network: {why} (hint: put the network first in the "
        "boot "
        "order of its firmware)",
    )
    return False


async def _insert(attempt: Attempt, medium_server: MediumServer) -> None:
    """Puts the boot medium into the BMC's virtual drive and has the next boot be from it. A machine
    that boots by it boots by nothing else that we know of, so it stays off where that cannot be
    done: what raises says why."""
    bmc = attempt.bmc
    drive = attempt.bmc.driver.drive
    if bmc.spec.no_medium:
        raise Unsupported(
            f"cannot insert the boot medium at {bmc.spec.where}: {bmc.spec.no_medium}",
            hint="bmc.boot: uri, or network, in the inventory",
        )
    if drive is None:
        raise Unsupported(
            f"cannot insert the boot medium at {bmc.spec.where}: what it speaks has no virtual "
            "drives"
        )
    url = await medium_server.lend(
        bmc.spec.node, bmc.spec.address, lambda text: bmc.note(events.MEDIUM, text)
    )
    try:
        name = await _patient(attempt, lambda: bmc.run(lambda: drive.insert(url)))
        pause = _FIRST_LOOK_S
        while not await _patient(
            attempt, lambda: bmc.run(drive.holds)
        ):  # some fetch all of it first
            if bmc.clock.now() + pause > attempt.until:
                raise OperationFailed(
                    f"cannot insert the boot medium at {bmc.spec.where}: it took the command, and "
                    "the drive is still empty",
                    hint=f"can the BMC reach {url.split('/media/')[0]}? The firewall of this "
                    "machine, or of the network, may tell",
                )
            await bmc.clock.sleep(pause)
            pause = min(_LAST_LOOK_S, pause * _LOOK_GROWTH)
        await _patient(attempt, lambda: bmc.run(drive.boot))
    except OperationFailed:
        with contextlib.suppress(OperationFailed, Unreachable):
            await bmc.run(drive.eject)
        await medium_server.give_back(bmc.spec.node)
        raise
    except BaseException:
        await medium_server.give_back(bmc.spec.node)
        raise
    await _look_back(attempt)
    bmc.note(
        events.MEDIUM,
        f"the boot medium is in drive {name} of the BMC at {bmc.spec.where}, for the next boot",
    )


async def _set_uri(attempt: Attempt) -> None:
    """Has the next boot be UEFI HTTP Boot of what the head has for the node. As with a medium, it
    stays off where it cannot."""
    bmc = attempt.bmc
    if not bmc.spec.boot_uri:
        raise OperationFailed(f"cannot boot {bmc.spec.name} by a URI: nothing says which")
    await _patient(attempt, lambda: bmc.run(lambda: bmc.driver.boot_uri(bmc.spec.boot_uri)))
    await _look_back(attempt)


async def _look_back(attempt: Attempt) -> None:
    """Some BMCs show what was set only when the machine has started, so one that shows something
    else is told of, and tried."""
    bmc = attempt.bmc
    if await _boot_device_kept(attempt) is False:
        bmc.tell_once(
            events.BOOT_DEVICE,
            f"the next boot may not be by {bmc.spec.boot}: the BMC at {bmc.spec.where} takes it "
            "and "
            "says something else (hint: look at the boot order of its firmware)",
        )


async def _boot_device_kept(attempt: Attempt) -> bool | None:
    """Whether the BMC has kept the boot device, None if it does not say."""
    try:
        return await _patient(
            attempt,
            lambda: attempt.bmc.run(attempt.bmc.driver.boots_as_told),
            not_now_until=attempt.bmc.clock.now() + _LAST_REST_S,
        )
    except (OperationFailed, NotNow):
        return None


async def _remind(attempt: Attempt) -> None:
    """Some BMCs forget the boot device as they switch on: such a one is told again, long before the
    firmware asks for it."""
    bmc = attempt.bmc
    with contextlib.suppress(OperationFailed, Unreachable):
        if await bmc.run(bmc.driver.boots_as_told) is False:
            await bmc.run(bmc.driver.boot_network)


@mutation(
    "power-off",
    changes={"power": ("ON", "OFF")},
    excludes={"run": "SYNC", "busy": "BUSY"},
    timeout=30.0,
    on_timeout=("power", "HANG"),
    guarded=True,
)
async def power_off(service: PowerService, request: MutationRequest) -> Mapping[str, str]:
    """Power the node off; with parameter soft, let its system shut down first; with gentle, by that
    alone."""
    async with service.attempt(request) as attempt:
        if attempt.params.get("gentle"):
            return await _gently_off(attempt)
        if attempt.params.get("soft") and await _soft_off(attempt):
            return _power_value(PowerState.OFF)
        return await _hard_off(attempt)


@mutation("power-reset", changes={"power": ("HANG", "OFF")}, timeout=30.0, guarded=True)
async def power_reset(service: PowerService, request: MutationRequest) -> Mapping[str, str]:
    """Power off a node that hangs; with parameter gentle, only if its system does it."""
    async with service.attempt(request) as attempt:
        if attempt.params.get("gentle"):
            return await _gently_off(attempt)
        return await _hard_off(attempt)


async def _hard_off(attempt: Attempt) -> Mapping[str, str]:
    """A BMC that says OFF is told all the same: it may be wrong, and a machine that is off does not
    mind."""
    bmc = attempt.bmc
    if await _patient(attempt, bmc.read) is PowerState.ON:
        await _patient(attempt, lambda: bmc.run(bmc.driver.off))
    else:
        with contextlib.suppress(OperationFailed, NotNow):
            await bmc.run(bmc.driver.off)
    return await _becomes(attempt, PowerState.OFF, "power off")


async def _gently_off(attempt: Attempt) -> Mapping[str, str]:
    """Asks the system inside to shut down, and waits for as long as an attempt may take. Raises
    OperationFailed for one that does not, and Unsupported where the BMC cannot ask: its power is
    never cut."""
    bmc = attempt.bmc
    if await _patient(attempt, bmc.read) is PowerState.ON:
        await _patient(attempt, lambda: bmc.run(lambda: bmc.driver.off(soft=True)))
    try:
        return await _becomes(attempt, PowerState.OFF, "shut down", attempt.since + attempt.most_s)
    except OperationFailed:
        raise OperationFailed(
            f"cannot shut down {bmc.spec.name}: the BMC at {bmc.spec.where} has asked its system "
            "to, which does "
            "not",
            hint="does something in it listen to the power button?",
        ) from None


async def _patient(
    attempt: Attempt,
    operation: Callable[[], Awaitable[Answer]],
    *,
    silence: bool = True,
    not_now_until: float | None = None,
) -> Answer:
    """What the BMC answers. Silence, "not now" and "all sessions are in use" are waited out while
    there is time for another try: BMCs flap, and start anew. `silence` False: one that says nothing
    is given up at once. `not_now_until`: what it cannot do now is waited for so long only, by the
    BMC's clock."""
    bmc = attempt.bmc
    failures = 0
    while True:
        try:
            return await operation()
        except NotNow as busy:
            bmc.missed(busy)
            failures += 1
            pause = max(_rest_s(failures), min(busy.retry_s, _LONGEST_REST_S))
            until = attempt.since + attempt.most_s
            if bmc.clock.now() + pause > min(until, not_now_until or until):
                raise
            attempt.not_now_s += pause
        except (Unreachable, NoSession) as error:
            silent = isinstance(error, Unreachable)
            if silent:
                bmc.missed(error)
            failures += 1
            pause = _rest_s(failures)
            late = bmc.clock.now() + pause + bmc.spec.timeout_s > attempt.until
            if late or (silent and not silence):
                raise
        await bmc.clock.sleep(pause)


def _rest_s(failures: int) -> float:
    """Seconds until a BMC is asked again that did not do it so many times in a row."""
    return backoff(failures, _FIRST_REST_S, _LAST_REST_S)


async def _soft_off(attempt: Attempt) -> bool:
    """Whether the system shut down by itself in its share of the time."""
    bmc = attempt.bmc
    now = bmc.clock.now()
    until = now + (attempt.until - now) * _SOFT_SHARE
    try:
        await _patient(
            attempt,
            lambda: bmc.run(lambda: bmc.driver.off(soft=True)),
            silence=False,
            not_now_until=until,
        )
        await _becomes(attempt, PowerState.OFF, "shut down", until)
    except Unsupported:
        return False
    except (OperationFailed, NotNow) as error:
        bmc.note(events.SOFT_OFF, f"pulling the plug: {error.message}")
        return False
    return True


async def _becomes(
    attempt: Attempt, wanted: PowerState, action: str, until: float | None = None
) -> Mapping[str, str]:
    """Reads back until the state is `wanted`, at most `until` then. BMCs go quiet for a moment
    after a power action, so silence is waited out.

    Raises OperationFailed if the BMC goes on saying otherwise, Unreachable if it says nothing any
    more.
    """
    bmc = attempt.bmc
    pause = _FIRST_LOOK_S
    while True:
        silence: Unreachable | None = None
        try:
            if await bmc.read() is wanted:
                return _power_value(wanted)
        except Unreachable as error:
            silence = error
            attempt.not_now_s += pause if isinstance(error, NotNow) else 0.0
        if bmc.clock.now() + pause > (attempt.until if until is None else until):
            break
        await bmc.clock.sleep(pause)
        pause = min(_LAST_LOOK_S, pause * _LOOK_GROWTH)
    if silence is not None:
        raise silence
    says = bmc.power.value if bmc.power else UNKNOWN
    raise OperationFailed(
        f"cannot {action} {bmc.spec.name}: the BMC at {bmc.spec.where} took the command, and still "
        f"says {says}",
        hint="look at the machine, its power supply and its BMC's event log",
    )


def _power_value(state: PowerState) -> Mapping[str, str]:
    return {"power": state.value}


MUTATIONS = (power_discover, power_on, power_off, power_reset)

ASKED: Mapping[str, str] = {
    power_on.name: "switch it on (it has no BMC; if it is on already, switch it off and on again)",
    power_off.name: "switch it off (it has no BMC)",
    power_reset.name: "switch it off (it has no BMC)",
}
"""What a person is asked for of a node without a BMC."""
