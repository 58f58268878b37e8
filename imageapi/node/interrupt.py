"""How work that takes long is called off: it asks, now and then, whether it is still wanted."""

from __future__ import annotations

from collections.abc import Callable

from layercake.kraken.errors import LayercakeError

Interrupt = Callable[[], bool]
"""Whether to give up."""


class Interrupted(LayercakeError):
    """The work was called off. That is no failure of what it was done for."""


def never() -> bool:
    """An Interrupt that never comes."""
    return False
