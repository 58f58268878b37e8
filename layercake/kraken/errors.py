"""The exception tree. Everything that Layercake raises on purpose is a LayercakeError.

LayercakeError
 +-- DeclarationError      a mutation or variable is declared wrongly (a programmer's mistake)
 +-- GraphTooLarge         the declarations span more states than the limit
 +-- WireError             a datagram is malformed, forged or replayed
 +-- InputError            a user's mistake: inventory, command line, API request
 |    +-- NotFound         what was named does not exist (an API answers 404)
 +-- Refused               the request is understood and not allowed now (BUSY node, window closed)
 |    +-- HeadOutdated     a node follows a head of a later epoch
 +-- Unreachable           something outside does not answer (BMC, node, head)
 +-- OperationFailed       something outside answered with a failure
      +-- Stalled          something outside has begun, and does not get on
"""

from __future__ import annotations


class LayercakeError(Exception):
    """An error that a person will read: "cannot X: why", and a hint what to do about it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} (hint: {self.hint})" if self.hint else self.message


class DeclarationError(LayercakeError):
    """A variable or mutation is declared wrongly; names what and where."""


class GraphTooLarge(LayercakeError):
    """The declared mutations reach more states than the limit; names the variables."""


class WireError(LayercakeError):
    """A datagram is malformed, forged or replayed. Never answered with detail to its sender."""


class InputError(LayercakeError):
    """A user's mistake. Nothing was changed."""


class NotFound(InputError):
    """What was named does not exist."""


class Refused(LayercakeError):
    """Understood, and not allowed now."""


class HeadOutdated(Refused):
    """A node follows a head of a later epoch than the one that asks; `epoch` is that which it
    knows."""

    def __init__(self, message: str, *, epoch: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.epoch = epoch


class Unreachable(LayercakeError):
    """Something outside did not answer in time."""


class OperationFailed(LayercakeError):
    """Something outside answered that it failed."""


class Deposed(OperationFailed):
    """Another head leads, and this one does no more."""


class Stalled(OperationFailed):
    """Something outside does not get on, and will not by itself; `after` is the last that was seen
    of it."""

    def __init__(self, message: str, *, after: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.after = after
