"""A clock that steps for one process and its children, while the machine's own stays as it is.

A time namespace does not cover CLOCK_REALTIME, so libfaketime stands between the process and its C
library: for Python, for the modules, for SQLite and OpenSSL alike. Monotonic clocks are left alone,
as by a real step.
"""

from __future__ import annotations

from pathlib import Path

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
"""Of Debian's package libfaketime."""
LOOKS_S = 1
"""How often the library looks at what it should add."""


class SteppedClock:
    """CLOCK_REALTIME, off by so many seconds. Processes see it that were started with
    `environment`. Raises FileNotFoundError without the library: the loader would only mumble, and
    no clock would step."""

    def __init__(self, file: Path) -> None:
        if not LIBRARY.is_file():
            raise FileNotFoundError(
                f"cannot step a clock: {LIBRARY} is not there (apt-get install faketime)"
            )
        self._file = file
        self.step(0)

    @property
    def environment(self) -> dict[str, str]:
        """For the process whose clock it is."""
        return {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": str(LOOKS_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "NO_FAKE_STAT": "1",
        }

    def step(self, seconds: float) -> None:
        """From now on the clock is so far from the machine's."""
        partial = self._file.with_name(f".{self._file.name}")
        partial.write_text(f"{seconds:+.0f}\n")
        partial.replace(self._file)

    @staticmethod
    def forget(process: int) -> None:
        """Removes what the library has left in memory of a process that was started with
        `environment` and has ended."""
        for name in ("faketime_shm", "sem.faketime_sem"):
            Path(f"/dev/shm/{name}_{process}").unlink(missing_ok=True)
