"""The password of a node's BMC is turned in a release: a new one is on the head's disk before the
BMC has it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from layercake.base.secrets import SecretRef, Vault
from layercake.base.text import count_of, first_few
from layercake.fleet.store import Record
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import references

PASSWORD = "power.password"  # noqa: S105 (the call's name)
BYTES = 12
"""Random ones: sixteen letters, which every BMC takes (IPMI 2.0, 22.30)."""

Ask = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Asks the module that offers a call. Raises LayercakeError."""


class Left(Exception):
    """The password stays as it is; the text says why."""


def of(record: Record, module: str, nodes: Iterable[Record]) -> SecretRef:
    """The secret that is turned. Raises Left where there is none, or where it is not this node's
    alone."""
    found = references(part) if (part := record.node.parts.get(module)) is not None else []
    if len(found) != 1:
        raise Left("the inventory names no password of its BMC")
    if found[0].file is None:
        raise Left(f"its password is in an {found[0]}, which the head cannot write")
    others = [
        one.name
        for one in nodes
        if one is not record
        and (part := one.node.parts.get(module)) is not None
        and any(ref.file == found[0].file for ref in references(part))
    ]
    if others:
        raise Left(
            f"{count_of(len(others), 'other node')} with the same password "
            f"({first_few(sorted(others), 3)}): give each node a file of its own"
        )
    return found[0]


async def turn(
    record: Record, ref: SecretRef, vault: Vault, ask: Ask, changed: Callable[[Record], None]
) -> str:
    """Turns it; what was done, for people. A head that was stopped in the middle goes on with the
    password that it had prepared. Raises Left where the secret cannot be written, and
    LayercakeError if the BMC will not have it."""
    try:
        new = await asyncio.to_thread(vault.prepare, ref, lambda: secrets.token_urlsafe(BYTES))
    except InputError as error:
        raise Left(error.message) from None
    answer = await ask(PASSWORD, {"node": record.node.id, "password": new})
    if answer["left"]:
        raise Left(answer["left"])
    await asyncio.to_thread(vault.commit, ref)
    changed(record)
    return f"a new one is in {ref}, and the BMC at {answer['where']} takes it"
