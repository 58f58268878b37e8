"""What goes wrong in a simulated fleet. Pure: each fault follows from the seed, a node's name and a
number, so the same seed makes the same faults whatever the machine is at."""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from hashlib import blake2b

_DRAWS = struct.Struct("<4I")
_WHOLE = float(1 << 32)


def random_numbers(seed: int, *words: object) -> tuple[float, float, float, float]:
    """Four numbers from [0, 1) that follow from the seed and the words."""
    a, b, c, d = _DRAWS.unpack(
        blake2b("/".join(map(str, (seed, *words))).encode(), digest_size=16).digest()
    )
    return a / _WHOLE, b / _WHOLE, c / _WHOLE, d / _WHOLE


class Bmc(enum.Enum):
    """How a BMC is."""

    WELL = "answers and obeys"
    DEAD = "never answers"
    SLOW = "takes seconds for an answer"
    LIAR = "says yes and does nothing"


_BAD = (Bmc.DEAD, Bmc.SLOW, Bmc.LIAR)


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """What is to become of one node. `flaps_from`: seconds after the begin of the fleet when it
    falls silent first, None if it never does; `dies_after`: seconds of running after which it
    hangs, once, None if it does not; `slow_s`: what a slow BMC takes for an answer."""

    flaps_from: float | None = None
    dies_after: float | None = None
    bmc: Bmc = Bmc.WELL
    slow_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """All that is to go wrong. Shares are from 0 to 1, of datagrams or of nodes; times are seconds.

    A datagram takes `delay_s`, `jitter_s` more or less; of those that are `reorder`ed each is held
    until later ones have overtaken it. A node that flaps is silent for `flap_for_s` of each
    `flap_every_s`. One that dies hangs once, within `dies_within_s` of its first life; with
    `every_s` again that long after each time it is up.
    """

    seed: int = 1
    loss: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0
    reorder: float = 0.0
    duplicate: float = 0.0
    flap: float = 0.0
    flap_every_s: float = 60.0
    flap_for_s: float = 20.0
    dead: float = 0.0
    dies_within_s: float = 60.0
    bad_bmc: float = 0.0
    every_s: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether every datagram arrives at once."""
        return not (self.loss or self.delay_s or self.jitter_s or self.reorder or self.duplicate)

    def fate(self, node: str, way: str, number: int) -> tuple[float, ...]:
        """After how many seconds each copy of a node's so-manieth datagram in one direction
        arrives; none if it is lost."""
        lost, jitter, late, twice = random_numbers(self.seed, node, way, number)
        if lost < self.loss:
            return ()
        takes = max(0.0, self.delay_s + self.jitter_s * (2.0 * jitter - 1.0))
        if late < self.reorder:
            takes += self.delay_s + self.jitter_s + 0.05
        return (takes, takes + self.jitter_s + 0.001) if twice < self.duplicate else (takes,)

    def of_node(self, node: str) -> NodeFaults:
        """What is to become of a node."""
        flaps, dies, bad, kind = random_numbers(self.seed, node, "destiny")
        when, after, slow, _ = random_numbers(self.seed, node, "times")
        bmc = _BAD[int(kind * len(_BAD))] if bad < self.bad_bmc else Bmc.WELL
        return NodeFaults(
            when * self.flap_every_s if flaps < self.flap else None,
            after * self.dies_within_s if dies < self.dead else None,
            bmc,
            4.0 + 8.0 * slow,
        )

    def silent(self, node_faults: NodeFaults, now: float) -> bool:
        """Whether a node that flaps is silent, so many seconds after the begin of the fleet."""
        if node_faults.flaps_from is None or now < node_faults.flaps_from:
            return False
        return (now - node_faults.flaps_from) % self.flap_every_s < self.flap_for_s
