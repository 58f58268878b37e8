"""A pseudo terminal: a machine's serial port, or the terminal of a program that wants one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import tty


class Serial:
    """One side of it, the other is `other`, by its path `path`. `got` is what came from there."""

    def __init__(self) -> None:
        self.handle, other = pty.openpty()
        tty.setraw(self.handle)
        tty.setraw(other)
        self.path, self.other, self.got = os.ttyname(other), other, b""
        asyncio.get_running_loop().add_reader(self.handle, self._read)

    def _read(self) -> None:
        self.got += os.read(self.handle, 4096)

    async def write(self, data: bytes) -> None:
        """As fast as it is taken."""
        os.set_blocking(self.handle, False)
        while data:
            with contextlib.suppress(BlockingIOError):
                data = data[os.write(self.handle, data[:1024]) :]
            await asyncio.sleep(0)

    def close(self) -> None:
        """Closes both sides."""
        asyncio.get_running_loop().remove_reader(self.handle)
        os.close(self.handle)
        os.close(self.other)
