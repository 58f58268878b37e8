"""Part of a head in a process of its own, to be stopped and killed: it has the floating addresses
for as long as the lease in a directory says.

    python -m tests.support.address_holder DIRECTORY INTERFACE ADDRESS/PREFIX...
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from layercake.base.lease import Lease
from layercake.heads.floating.keeper import FloatingAddresses, take_away
from layercake.moduleapi.network import HeadAddress


async def _hold(directory: Path, floating: list[HeadAddress]) -> None:
    lease = Lease(directory)
    take_away([one.address for one in floating])
    held = asyncio.create_task(FloatingAddresses(floating, lambda: lease.times()[1]).hold())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, held.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await held


def main() -> None:
    """Runs until SIGTERM."""
    directory, interface, *words = sys.argv[1:]
    floating = [
        HeadAddress(interface=interface, address=word.split("/")[0], prefix=int(word.split("/")[1]))
        for word in words
    ]
    asyncio.run(_hold(Path(directory), floating))


if __name__ == "__main__":
    main()
