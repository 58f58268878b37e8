"""Every module of the appliance, listed once and by hand: what there is, and who carries which mutation out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import imageapi.mutations
import powerman.mutations
import pxe.mutations
from layercake.head import mutations as head_mutations
from layercake.kraken.mutation import Mutation
from layercake.kraken.variables import Variable

SERVICES = ("pxe", "powerman", "imageapi")

VARIABLES: tuple[Variable, ...] = (
    *powerman.mutations.VARIABLES,
    *pxe.mutations.VARIABLES,
    *head_mutations.VARIABLES,
    *imageapi.mutations.VARIABLES,
)

MUTATIONS: tuple[Mutation, ...] = (
    *powerman.mutations.MUTATIONS,
    *pxe.mutations.MUTATIONS,
    *head_mutations.MUTATIONS,
    *imageapi.mutations.MUTATIONS,
)


def _owners(service: str, mutations: Iterable[Mutation]) -> dict[str, str]:
    return {m.name: service for m in mutations}


# The service that carries a mutation out; "" is the head itself, which waits for what it will see.
OWNER: dict[str, str] = {
    **_owners("powerman", powerman.mutations.MUTATIONS),
    **_owners("pxe", pxe.mutations.MUTATIONS),
    **_owners("", head_mutations.MUTATIONS),
    **_owners("", imageapi.mutations.MUTATIONS),
}


def configured(boot_timeout: float, boot_attempts: int) -> tuple[Mutation, ...]:
    """The mutations with how long a boot may take (seconds) and how often it is tried."""
    return tuple(
        dataclasses.replace(m, timeout=boot_timeout, retries=boot_attempts) if m.name == "boot-wait" else m for m in MUTATIONS
    )
