"""Records what machines of a rack say and hear, by tcpdump on their taps: nothing is forwarded, so
it costs next to nothing."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from patience import patience

from vrack import netns
from vrack.rack import Rack, RackError

SNAP = 1600
"""How many bytes of a frame are kept: all of one that a wire could carry, and the beginning of
those that the kernel has put together out of many, which are files on their way."""
_LIMIT_S = 20.0


class Recording:
    """NAME.pcap in `directory` for each machine of a rack that is up, or for those in `slots`.
    `with Recording(rack, directory):`.

    A recording goes on over all starts of its machine, and is whole at any time. It has what a
    listener on the link would have: the tokens of boots, which are used up when a node has joined.
    """

    def __init__(self, rack: Rack, directory: Path, slots: Sequence[int] | None = None) -> None:
        self._rack, self._directory = rack, directory.resolve()
        self._slots = range(len(rack.nodes)) if slots is None else slots
        self._running: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Recording:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def file(self, slot: int) -> Path:
        """Where the recording of a machine is."""
        return self._directory / f"{self._rack.nodes[slot].name}.pcap"

    def start(self) -> None:
        """Returns when all are recorded. Raises RackError, and OSError if the directory cannot be
        made."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for slot in self._slots:
            log = self._rack.node_directory(slot) / "tcpdump.log"
            with log.open("w") as said:
                argv = [
                    "setpriv",
                    "--pdeathsig",
                    "KILL",
                    "tcpdump",
                    "-i",
                    netns.tap(slot),
                    "-w",
                    str(self.file(slot)),
                    "-U",
                    "-Z",
                    "root",
                    "-s",
                    str(SNAP),
                    "--immediate-mode",
                    "-B",
                    "8192",
                ]
                self._running.append(self._rack.exec(argv, stdout=said, stderr=said, text=True))
            self._listens(self._running[-1], log)

    @staticmethod
    def _listens(process: subprocess.Popen[str], log: Path) -> None:
        limit = time.monotonic() + patience(_LIMIT_S)
        while "listening on" not in log.read_text():
            if process.poll() is not None or time.monotonic() > limit:
                raise RackError(
                    f"cannot record: {log.read_text().strip() or 'tcpdump does not begin'} (hint: "
                    "install tcpdump)"
                )
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends the recordings. May be called twice."""
        while self._running:
            process = self._running.pop()
            process.terminate()
            process.wait(_LIMIT_S)
