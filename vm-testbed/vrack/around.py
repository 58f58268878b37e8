"""What is put around a rack that is up for a while, and taken away again."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from vrack.rack import Rack, RackError


class Around(ABC):
    """`with` makes it, and always takes it away again. `what` is how it is called in errors."""

    def __init__(self, rack: Rack, what: str) -> None:
        self._rack, self._what = rack, what

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    @abstractmethod
    def up(self) -> None:
        """Makes it. Raises RackError."""

    @abstractmethod
    def down(self) -> None:
        """Takes it away. May be called twice."""

    def _batch(self, lines: Sequence[str]) -> None:
        """Commands of `ip` in the rack's network. Raises RackError."""
        done = subprocess.run(
            ["ip", "-n", self._rack.namespace, "-batch", "-"],
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RackError(f"cannot make {self._what}: {done.stderr.strip()}")
