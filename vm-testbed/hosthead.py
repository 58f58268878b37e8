"""A head for pretended nodes, as a process: `python -m layercake ... serve`, and beside it a join
token for each node that asks.

A real node gets its token from the network boot. Pretended nodes have no firmware, so this writes
the token that a boot would carry to DATA/tokens/NAME when it finds DATA/tokens/NAME.boots.

    python vm-testbed/hosthead.py DATA [CODE]

CODE is where the Layercake is that is run: another version, unpacked."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[2] if len(sys.argv) > 2 else str(Path(__file__).resolve().parents[1]))

from layercake.api.server import Api
from layercake.head import settings as head_settings
from layercake.head.head import Head

LOOK_S = 0.1
WINDOW_S = 3600.0


def write_tokens(head: Head, directory: Path) -> None:
    """For each node that asks by a file NAME.boots, as one that boots asks its firmware's DHCP
    server, a token in NAME that only root reads."""
    directory.mkdir(mode=0o700, exist_ok=True)
    for asked in directory.glob("*.boots"):
        asked.unlink()
        partial = directory / f".{asked.stem}"
        partial.touch(mode=0o600)
        partial.write_text(head.joining.open(head.store.named(asked.stem), WINDOW_S))
        partial.replace(directory / asked.stem)


def api_of(head: Any) -> Any:
    """What serves people and nodes; of an older version, too."""
    return head.api() if hasattr(head, "api") else Api(head)  # type: ignore[call-arg]


async def serve(data: Path) -> None:
    """Until SIGTERM."""
    head = Head(data, head_settings.load(data))
    api = api_of(head)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await head.start()
    await api.start()
    try:
        while not stop.is_set():
            write_tokens(head, data / "tokens")
            await asyncio.sleep(LOOK_S)
    finally:
        await api.stop()
        await head.stop()


if __name__ == "__main__":
    os.umask(0o077)
    asyncio.run(serve(Path(sys.argv[1])))
