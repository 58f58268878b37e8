"""What the engine works with: events, variables, mutations, the state graph."""

from __future__ import annotations

from docs.generator.markdown import code, page, plain, table
from layercake.head import modules
from layercake.kraken.events import Bearing
from layercake.kraken.mutation import Condition, Mutation, Where
from layercake.kraken.views.draw import svg
from layercake.moduleapi.module import Module

_NOTES = {
    Bearing.NONE: "",
    Bearing.PROGRESS: "The boot gets more time.",
    Bearing.FIRMWARE: "The firmware is waited for as long again.",
    Bearing.ASKS: "The machine is on: a step that waits for that is done.",
    Bearing.DOUBT: "The node is asked whether it is alive.",
    Bearing.DISPUTE: "The node's session ends, and the node is quarantined.",
    Bearing.CLAIM: "With `replace: auto` that machine may be taken for the node.",
    Bearing.STANDING: "Not in the history: it says how things are.",
}
_VARIABLE = ("Variable", "Values", "Meaning", "Module")
_MUTATION = (
    "Mutation",
    "Changes",
    "Conditions",
    "Carried out by",
    "Timeout, then",
    "Attempts",
    "Does",
)


def events_page() -> str:
    """Every kind of event."""
    parts = [
        "What is in the history of nodes and of the head: `layercake events`, `layercake node "
        "show`. Filter by the beginning "
        "of a kind, as `layercake events --kind boot`. Of warnings, errors and private kinds "
        "viewers are told the "
        "meaning alone.\n"
    ]
    told = {e.name for m in modules.built_in() for e in m.events}
    others = [e for e in modules.standard().events.values() if e.name not in told]
    sections = [
        *((f"Module {m.name}", m.events) for m in modules.built_in()),
        *([("Others", others)] if others else []),
    ]
    for title, kinds in sections:
        rows = [
            (
                code(e.name),
                e.severity.value,
                plain(e.meaning),
                _NOTES[e.bearing] + ("Private." if e.private else ""),
            )
            for e in sorted(kinds, key=lambda e: e.name)
        ]
        parts += [f"## {title}\n", table(("Kind", "Severity", "Meaning", "Also"), rows)]
    return page("Events", *parts)


def variables_page() -> str:
    """Variables and mutations."""
    every, known = modules.built_in(), modules.standard()
    variables = [
        (code(v.name), " ".join(v.values), plain(v.doc), code(m.name))
        for m in every
        for v in m.variables
    ]
    mutations = [_mutation_row(m, x) for m in every for x in m.mutations]
    goals = [
        (
            what,
            " ".join(f"{k}={v}" for k, v in sorted(known.goal_values(state, empty=empty).items())),
        )
        for what, state, empty in (
            ("up", "up", False),
            ("up, with no images", "up", True),
            ("off", "off", False),
        )
    ]
    return page(
        "Variables and mutations",
        "What they are: [why the engine works as it does](../explanation/engine.md).\n",
        table(_VARIABLE, variables),
        "## Mutations\n",
        table(_MUTATION, mutations),
        "## What is wanted of a node\n",
        table(("Wanted", "Goal"), goals),
        "## The state graph\n",
        "Each box is a state: what is known of a node. Each arrow is a mutation.\n",
        "[![The state graph](graph.svg)](graph.svg)\n",
    )


def _mutation_row(module: Module, m: Mutation) -> tuple[object, ...]:
    changes = ", ".join(f"{v} {a}->{b}" for v, (a, b) in m.changes.items())
    rules = (("requires", m.requires), ("excludes", m.excludes))
    conditions = " ".join(f"{word} {_condition(given)}" for word, given in rules if given)
    by = "the node" if m.where is Where.NODE else module.name
    then = ", " + "=".join(m.on_timeout) if m.on_timeout else ""
    return code(m.name), changes, conditions, by, f"{m.timeout:g} s{then}", m.retries, plain(m.doc)


def _condition(given: Condition) -> str:
    return ", ".join(f"{k}={'/'.join(v)}" for k, v in given.items())


def graph_picture() -> str:
    """The state graph of the appliance's modules."""
    return svg(modules.standard().default_planner)
