"""The head's own module: the variable `run` and its mutations. The head itself sees nodes join,
speak and fall silent.

Nothing is done here: the handlers wait, and what the sync socket and the join discover completes
them.
"""

from __future__ import annotations

from layercake.features.releases.events import EVENTS as OF_RELEASES
from layercake.fleet.events import EVENTS
from layercake.fleet.wishes import Wishes
from layercake.kraken.mutation import Mutation, Where, mutation
from layercake.kraken.variables import UNKNOWN, Variable
from layercake.moduleapi.module import Goals, Module, Part

RUN = Variable(
    "run", (UNKNOWN, "INIT", "SYNC", "ERROR"), "whether the node's agent is joined and speaks"
)
VARIABLES = (RUN,)


@mutation(
    "attach",
    changes={"run": ("INIT", "SYNC")},
    requires={"power": "ON"},
    where=Where.HEAD,
    timeout=30.0,
    on_timeout=("power", "HANG"),
)
def attach() -> None:
    """The joined node's first datagram arrives."""


@mutation(
    "await-return",
    changes={"run": ("ERROR", "SYNC")},
    requires={"power": "ON"},
    where=Where.HEAD,
    timeout=60.0,
    on_timeout=("power", "HANG"),
    retries=2,
)
def await_return() -> None:
    """A silent node gets time to speak again before it is power-cycled."""


MUTATIONS: tuple[Mutation, ...] = (attach, await_return)

MODULE = Module(
    name="head",
    doc="The bond with the nodes: they join, speak, and fall silent.",
    part=Part(Wishes),
    variables=VARIABLES,
    mutations=MUTATIONS,
    goals=Goals(up={"run": "SYNC"}),
    events=(*EVENTS, *OF_RELEASES),
)
