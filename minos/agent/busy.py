"""Whether work is going on here that must not be interrupted: `layercake-busy` on the node, or
inside a container.

    RUN/busy        somebody on the node said so
    RUN/busy.d/WHO  so did WHO, from a container that has this directory mounted
                    (imageapi/slurm/layercake-busy): RUN itself holds the session's key, no
                    container is to see it

It is seen when it is said: the kernel tells which names come and go. Containers belong to others,
so a flood of names costs a look each GATHER seconds, no more.
"""

from __future__ import annotations

import math
import os
import selectors
from collections.abc import Callable
from pathlib import Path

from minos.inotify import IGNORED, Event, Inotify

DIRECTORY = "busy.d"
FLAG = "busy"
GATHER = 0.02
"""Seconds for which nothing more is heard after a look."""
REST = 10.0
"""Seconds between two looks at what nobody told."""


def prepare(run: Path) -> None:
    """Makes the directory, so that it can be mounted into a container."""
    (run / DIRECTORY).mkdir(mode=0o755, parents=True, exist_ok=True)


def is_busy(run: Path) -> bool:
    """Whether anybody says so."""
    if (run / FLAG).exists():
        return True
    try:
        with os.scandir(run / DIRECTORY) as entries:
            return next(entries, None) is not None
    except FileNotFoundError:
        return False


class Busy:
    """`is_busy` of a directory, looked at when something has changed. `clock` gives seconds, `say`
    takes a line for the console.

    Where the kernel gives no watch (its limits of inotify are reached), each `look` is a look at
    the files.
    """

    def __init__(
        self,
        run: Path,
        selector: selectors.BaseSelector,
        clock: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self._run = run
        self._selector = selector
        self._clock = clock
        self._say = say
        self._inotify: Inotify | None = None
        self._root = -1
        self._blind_said = False
        self._value = False
        self._look_at = -math.inf
        self._listen_at = math.inf
        try:
            self._inotify = Inotify()
        except OSError as error:
            self._blind(error)
        else:
            selector.register(self._inotify, selectors.EVENT_READ)

    @property
    def due(self) -> float:
        """When the loop has to come by, on the clock; `math.inf` if it need not."""
        return self._listen_at

    @property
    def watched(self) -> bool:
        """Whether what changes is told, of which the last look was; else it has to be looked
        for."""
        return self._look_at > -math.inf

    def hears(self, source: object) -> bool:
        """Takes in what the kernel tells, if it is this that became readable."""
        if self._inotify is None or source is not self._inotify:
            return False
        if any(map(self._matters, self._inotify.read())):
            self._look_at = -math.inf
        self._selector.unregister(self._inotify)
        self._listen_at = self._clock() + GATHER
        return True

    def poll(self) -> bool:
        """Whether the node is busy."""
        now = self._clock()
        if self._inotify is not None and now >= self._listen_at:
            self._listen_at = math.inf
            self._selector.register(self._inotify, selectors.EVENT_READ)
        if now >= self._look_at:
            watched = self._watch()  # before the look: what comes after it is told
            self._value = is_busy(self._run)
            self._look_at = now + REST if watched else -math.inf
        return self._value

    def close(self) -> None:
        """Watches no more."""
        if self._inotify is not None:
            self._inotify.close()

    def _matters(self, event: Event) -> bool:
        return (
            event.directory != self._root
            or bool(event.mask & IGNORED)
            or event.name in (FLAG.encode(), DIRECTORY.encode())
        )

    def _watch(self) -> bool:
        """Watches both directories; one that was replaced meanwhile is another. Returns whether
        what changes is told."""
        if self._inotify is None:
            return False
        try:
            self._root = self._inotify.add(str(self._run))
            self._inotify.add(str(self._run / DIRECTORY))
        except FileNotFoundError:
            return self._root >= 0  # the missing one is told of when it comes
        except OSError as error:
            self._blind(error)
            return False
        return True

    def _blind(self, error: OSError) -> None:
        if not self._blind_said:
            self._blind_said = True
            self._say(
                f"agent: cannot watch for BUSY: {error} (hint: it is looked for once a second "
                "instead)"
            )
