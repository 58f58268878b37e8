"""What a test starts is there before it answers: the one place where tests wait until a server
takes connections."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from patience import patience

LIMIT_S = 60.0


def connected(
    address: Path | tuple[str, int], process: subprocess.Popen[Any] | None = None
) -> socket.socket:
    """A connection to a server that was just started, as soon as it takes one: at a Unix socket's
    path, or (host, port) by TCP. Raises AssertionError when its process ends before, or when it
    takes none in LIMIT_S."""
    family = (
        socket.AF_UNIX
        if isinstance(address, Path)
        else socket.AF_INET6
        if ":" in address[0]
        else socket.AF_INET
    )
    end = time.monotonic() + patience(LIMIT_S)
    while True:
        made = socket.socket(family)
        try:
            made.connect(str(address) if isinstance(address, Path) else address)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            made.close()
            assert process is None or process.poll() is None, (
                f"{address} answers nobody: its server has ended"
            )
            assert time.monotonic() < end, f"{address} answers nobody: {error}"
            time.sleep(0.01)
        except BaseException:
            made.close()
            raise
        else:
            return made


def answers(address: Path | tuple[str, int], process: subprocess.Popen[Any] | None = None) -> None:
    """Waits until a server takes connections; see `connected`."""
    with contextlib.closing(connected(address, process)):
        pass
