"""A head for pretended nodes, as a process: `python -m layercake ... serve`, and beside it a fresh join token for each node.

A real node gets its token from the network boot. Pretended nodes have no firmware, so this writes the token that a boot would
carry to DATA/tokens/NAME, and renews it when it was used.

    python vm-testbed/hosthead.py DATA [CODE]

CODE is where the Layercake is that is run: another version, unpacked.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, sys.argv[2] if len(sys.argv) > 2 else str(Path(__file__).resolve().parents[1]))

from layercake.api.server import Api
from layercake.head import settings as head_settings
from layercake.head.head import Head

RENEW_S = 0.1
WINDOW_S = 3600.0


def _gone(head: Head, run: str) -> bool:
    """Whether a node with a session needs another: it was lost, or it did not come back to a head that was started anew."""
    return run == "ERROR" or (run == "UNKNOWN" and time.monotonic() - head.started > 3 * head.settings.sync.dead_s)


def write_tokens(head: Head, directory: Path) -> None:
    """The tokens of all nodes without a BMC, each in a file that only root reads."""
    directory.mkdir(mode=0o700, exist_ok=True)
    for record in head.store:
        if record.node.to_record().get("bmc") is not None:
            continue  # a machine that boots by itself
        if record.session is not None and not _gone(head, record.value("run")):
            continue  # a new window would end its session
        token, path = head.joining.open(record, WINDOW_S), directory / record.name
        if not path.exists() or path.read_text() != token:
            partial = directory / f".{record.name}"
            partial.touch(mode=0o600)
            partial.write_text(token)
            partial.replace(path)


async def serve(data: Path) -> None:
    """Until SIGTERM."""
    head = Head(data, head_settings.load(data))
    api, stop = Api(head), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await head.start()
    await api.start()
    try:
        while not stop.is_set():
            write_tokens(head, data / "tokens")
            await asyncio.sleep(RENEW_S)
    finally:
        await api.stop()
        await head.stop()


if __name__ == "__main__":
    os.umask(0o077)
    asyncio.run(serve(Path(sys.argv[1])))
