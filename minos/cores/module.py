"""The cores that a site leaves to minOS and its agent, as a module of the head: a key of the
inventory, told to the node. It has no process.

minos: {cores: "0-1,32"}
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from layercake.base.scheduling.cores import format_cores, parse_cores
from layercake.base.text import describe
from layercake.moduleapi.fields import Check, Mistake
from layercake.moduleapi.module import Module, NodePart, Part

ALL = "all"
_HINT = 'as "0-1,32": numbers and ranges of the kernel\'s processors, as lscpu has them, or all'


def cores(value: object) -> str:
    """Cores as the kernel writes them, of a number, a text or a list of both, or ALL."""
    if value == ALL:
        return ALL
    items = value if isinstance(value, list) else [value]
    for item in items:
        if isinstance(item, bool) or not isinstance(item, str | int):
            raise Mistake(f"expected cores, found {describe(item)}", _HINT)
    try:
        return format_cores(parse_cores(",".join(map(str, items))))
    except ValueError as error:
        raise Mistake(str(error), _HINT) from None


class AgentCores(NodePart, frozen=True, kw_only=True):
    """Where the agent runs; without it on all cores."""

    KEY: ClassVar[str] = "minos"

    cores: Annotated[
        str,
        Check(cores),
        Meta(
            description='The cores that the agent\'s threads and its helpers stay on: 0, "0-1,32" '
            "a list, or all. Containers, commands and tasks run on all cores."
        ),
    ] = ALL


def node_document(part: AgentCores | None) -> dict[str, Any]:
    """What a node is told with its desired state; nothing where no cores are named."""
    return {"minos": {"cores": part.cores}} if part is not None and part.cores != ALL else {}


MODULE = Module(
    name="cores",
    doc="On which cores of a node its agent runs.",
    part=Part(AgentCores),
    tells=node_document,
)
