"""A machine's serial line as its BMC has it: a terminal that ipmi_sim opens, and a Unix socket that
QEMU connects to.

The terminal is there whether the machine is on or not, as a serial port is. What the BMC does not
take in time is lost, as on a wire; the machine never waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import tty
from pathlib import Path

SOCKET, TERMINAL = "serial.sock", "serial"
"""In the machine's directory."""
_AT_ONCE = 4096


class SerialLine:
    """One line. `open` before the BMC is started, `serve` before the machine is."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None

    def open(self) -> None:
        """Makes the terminal."""
        self._ours, self._its = pty.openpty()
        tty.setraw(self._its)
        os.set_blocking(self._ours, False)
        terminal = self._directory / TERMINAL
        terminal.unlink(missing_ok=True)
        terminal.symlink_to(os.ttyname(self._its))

    async def serve(self) -> None:
        """Waits for the machine, and hands on what either says."""
        path = self._directory / SOCKET
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._machine, path)
        asyncio.get_running_loop().add_reader(self._ours, self._typed)

    def _typed(self) -> None:
        with contextlib.suppress(OSError):
            data = os.read(self._ours, _AT_ONCE)
            if self._writer is not None:
                self._writer.write(data)

    async def _machine(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_AT_ONCE):
                with contextlib.suppress(OSError):  # nobody reads at the other end
                    os.write(self._ours, data)
        if self._writer is writer:
            self._writer = None
        writer.close()

    def close(self) -> None:
        """The line is gone."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                asyncio.get_running_loop().remove_reader(self._ours)
        os.close(self._ours)
        os.close(self._its)
