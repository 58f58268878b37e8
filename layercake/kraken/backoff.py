"""Exponential back-off: the one formula. Jitter is the caller's, who knows what must not happen at
the same time."""

from __future__ import annotations


def backoff(failures: int, first: float, most: float) -> float:
    """Seconds to wait after so many failures in a row (from 1): `first`, then twice as long each
    time, `most` at most."""
    return min(most, first * 2.0 ** min(max(0, failures - 1), 32))
