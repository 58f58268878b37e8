"""Another password for the user that we log in as, given up for the old one where the BMC does not
take it: some cut a password off, or say yes and keep the old one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from layercake.kraken.errors import LayercakeError
from powerman.bmc import ManagedBmc
from powerman.driver import LoginRefused, PowerDriver, Unsupported
from powerman.settings import BmcSpec

MakeDriver = Callable[[BmcSpec], PowerDriver]


async def log_in(bmc: ManagedBmc, spec: BmcSpec, make: MakeDriver) -> None:
    """Logs in anew, whatever sessions there are. Inside a turn. Raises LayercakeError."""
    probe = make(spec)
    try:
        await bmc.run(probe.state)
    finally:
        await probe.close()


async def change(bmc: ManagedBmc, new: str, make: MakeDriver) -> dict[str, Any]:
    """Gives the user of a BMC another password, and logs in with it; "left" says why that is not
    possible. One that it has already, of an attempt that was cut off, is found out by the login.
    Inside a turn. Raises LayercakeError."""
    changed = replace(bmc.spec, password=new)
    try:
        await bmc.run(lambda: bmc.driver.set_password(new))
    except Unsupported as error:
        return {"where": bmc.spec.where, "left": error.message}
    except LoginRefused:
        await log_in(bmc, changed, make)
    else:
        try:
            await log_in(bmc, changed, make)
        except LayercakeError:
            with contextlib.suppress(LayercakeError):  # by the session that we have still
                await bmc.run(lambda: bmc.driver.set_password(bmc.spec.password))
            raise
    return {"where": bmc.spec.where, "left": ""}
