"""`layercake plan` and `apply`: show what an inventory would change, and make it so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import click

from layercake.base.text import count_of
from layercake.client.command import FAILED, OK, Answer, App, F, command, reason_option, yes_option
from layercake.client.confirm import at_stake, current_user
from layercake.client.inventory_file import inventory_request, passed_over_lines, waiting_lines
from layercake.client.output import RED, Column, Output
from layercake.client.watch import Watch, converged, follow, print_summary
from layercake.features.rolls.commands import begun_line, follow_rolls
from layercake.inventory.changes import Action, Change, show_value
from layercake.inventory.ranges import fold
from layercake.kraken.errors import InputError, Refused

_COLUMNS = (
    Column("NODES"),
    Column("ACTION", styled=True),
    Column("CHANGE", flexible=True),
    Column("WAY", flexible=True),
)
_SHOWN_OF_NEW = (
    "state",
    "firmware",
    "images",
    "bmc.driver",
)  # what differs from node to node would keep rows apart
_ADOPT = {
    "ask": "is left alone until `layercake node take RANGE` (adopt: ask)",
    "reset": "is ended, and started anew (adopt: reset)",
}
"""What becomes of what runs on a machine that is new. Nobody has asked its BMC yet."""


_SOURCE = {"add": "is new", "change": "changes", "remove": "is used no more"}


def consent_options(function: F) -> F:
    """What is agreed to, why it is done, and how long the nodes are followed: of each command that
    changes what is wanted of many."""
    for option in reversed(
        (
            click.option(
                "--at-once",
                is_flag=True,
                help="Images change on all nodes at once, however many they are.",
            ),
            click.option(
                "--confirm-secrets",
                is_flag=True,
                help="Secrets may go to the BMC addresses that this changes.",
            ),
            reason_option,
            click.option("--no-wait", is_flag=True, help="Do not wait until the nodes converge."),
            click.option(
                "--timeout",
                type=click.FloatRange(min=0),
                default=600.0,
                show_default=True,
                help="Seconds to wait.",
            ),
        )
    ):
        function = option(function)
    return function


@command()
@click.argument("file")
@click.option(
    "--why",
    "asked",
    metavar="NODE.KEY",
    default="",
    help="Only say which line of FILE gives a node this value, as n7.kernel_args.",
)
def plan(app: App, file: str, asked: str) -> Answer:
    """Show what applying the inventory FILE would do. Changes nothing."""
    if asked:
        return _why(app, file, asked)
    planned = app.head.post("/v1/inventory/plan", inventory_request(file))
    return Answer(planned, lambda out: show_plan(out, planned))


@command()
@click.argument("file")
@click.option("--allow-remove", is_flag=True, help="Nodes that are not in FILE are removed.")
@click.option(
    "--take-back",
    is_flag=True,
    help="Nodes that `image roll` has moved on since go back to the images of FILE.",
)
@consent_options
@yes_option
def apply(
    app: App,
    file: str,
    allow_remove: bool,
    take_back: bool,
    at_once: bool,
    confirm_secrets: bool,
    reason: str,
    no_wait: bool,
    timeout: float,
    yes: bool,
) -> Answer:
    """Make the inventory FILE (or - for standard input) what is wanted, and follow the nodes until
    they are there.

    Other images for more than a few running nodes are rolls, in batches with gates: as `roll` in
    FILE says, or else config.yaml.
    """
    request = inventory_request(file)
    planned = app.head.post("/v1/inventory/plan", request)
    if not app.out.json:
        show_plan(app.out, planned, at_once)
    agreement = Agreement(allow_remove, take_back, at_once, confirm_secrets, yes, reason)
    use = PlanUse("/v1/inventory/apply", f"apply {request['file']}", request)
    return carry_out(app, use, planned, agreement, None if no_wait else timeout)


class PlanUse(NamedTuple):
    """What is done with a plan: by which path, in words, and the request that it was made by."""

    path: str
    what: str
    request: Mapping[str, Any]


def carry_out(
    app: App, use: PlanUse, planned: Mapping[str, Any], agreement: Agreement, timeout: float | None
) -> Answer:
    """Has a plan carried out if people agree to it, and follows the nodes for `timeout` seconds;
    not at all without."""
    body = agree(app, use.what, planned, agreement)
    if not body:
        return Answer({"revision": None, "changed": [], "converged": None, "nodes": []})
    applied = app.head.post(use.path, {**use.request, **body})
    return followed(app, applied, planned, timeout)


def _why(app: App, file: str, asked: str) -> Answer:
    """Which line gives the value; the head is not asked, and need not be there."""
    from layercake.inventory.nodes.why import why
    from layercake.inventory.problems import Problems
    from layercake.inventory.yaml_marks import parse

    request = inventory_request(file)
    problems = Problems(request["file"])
    root = parse(request["yaml"], problems)
    problems.raise_if_any()
    node, key, found = why(root, request["file"], asked)
    meant = None if found else app.unknown_key(key)
    if meant is not None:
        raise InputError(
            f"cannot say why of {asked[:80]!r}: there is no key {key[:40]!r}, unless a module of "
            "the site's own brings it",
            hint=meant,
        )
    document = {
        "node": node,
        "key": key,
        "said": [
            {"file": request["file"], "line": s.mark.line, "where": s.where, "value": s.value}
            for s in found
        ],
    }
    lines = [
        f"{request['file']}:{said.mark.line}: {said.where}: "
        f"{'there is none' if said.removes else show_value(said.value)}"
        f"{'' if number == 0 else ' (does not count)'}"
        for number, said in enumerate(found)
    ]
    nobody = f"{request['file']} says nothing of {key} of {node}: it is as it is by default"
    return Answer(document, lambda out: out.lines("\n".join(lines) or nobody))


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a person has agreed to beforehand, and why it is use."""

    allow_remove: bool
    take_back: bool
    at_once: bool
    confirm_secrets: bool
    yes: bool
    reason: str


def agree(app: App, what: str, planned: Mapping[str, Any], agreement: Agreement) -> dict[str, Any]:
    """Asks whether what was planned may be done; the consent as the head is sent it, {} if there is
    nothing to do. Raises Refused for what --yes does not mean."""
    if not planned["changes"] and not _others(planned):
        return {}
    removed = _removed(planned)
    yes = agreement.yes
    at_once = agreement.at_once
    if not agreement.allow_remove:
        _refuse_removal(what, removed)
    _must_take_back(app, what, planned, agreement.take_back, yes)
    _must_move_secrets(app, what, planned, agreement.confirm_secrets, yes)
    app.must_confirm("Go on?" if yes else _question(app, planned, removed, at_once), yes)
    body = {
        "digest": planned["digest"],
        "allow_remove": agreement.allow_remove,
        "take_back": bool(planned.get("taken_back")),
        "at_once": at_once,
        "by": current_user(),
    }
    if agreement.reason:
        body["reason"] = agreement.reason
    if planned.get("secrets"):
        body["confirm_secrets"] = True
    return body


def _removed(planned: Mapping[str, Any]) -> list[str]:
    changes = map(Change.from_record, planned["changes"])
    return [change.node for change in changes if change.action is Action.REMOVE]


def _refuse_removal(what: str, removed: Sequence[str]) -> None:
    if removed:
        raise Refused(
            f"cannot {what}: it would remove {fold(removed)}",
            hint="say --allow-remove if that is meant",
        )


def _must_take_back(
    app: App, what: str, planned: Mapping[str, Any], allowed: bool, yes: bool
) -> None:
    """Asks, unless it is allowed, whether nodes may go back to the images that a roll took them
    from. Raises Refused with --yes, which does not mean that."""
    backwards = planned.get("taken_back")
    if allowed or not backwards:
        return
    if yes:
        raise Refused(
            f"cannot {what}: {'; '.join(map(_taken_back, backwards))}",
            hint="write the images that run into it, or say --take-back if that is meant",
        )
    app.must_confirm("Take them back?", False)


def _must_move_secrets(
    app: App, what: str, planned: Mapping[str, Any], allowed: bool, yes: bool
) -> None:
    """Asks, unless it is allowed, whether secrets may go to other addresses than before. Raises
    Refused with --yes, which does not mean that."""
    elsewhere = planned.get("secrets")
    if allowed or not elsewhere:
        return
    if yes:
        raise Refused(
            f"cannot {what}: {'; '.join(map(_elsewhere, elsewhere))}",
            hint="say --confirm-secrets if the new places may have them",
        )
    app.must_confirm("May the secrets go there?", False)


def _question(app: App, planned: Mapping[str, Any], removed: Sequence[str], at_once: bool) -> str:
    """What is asked before an inventory is applied: how many nodes, and how many of those it
    interrupts are at work."""
    count = len(planned["changes"])
    text = f"Apply this to {count} node{'' if count == 1 else 's'}"
    switching = (
        [name for roll in planned.get("rolls") or [] for name in roll["nodes"]] if at_once else []
    )
    for what, names in (("remove", removed), ("change the images at once of", switching)):
        stake = at_stake(app, names) if names else ""
        text += f", and {what} {stake}" if stake else ""
    return f"{text}?"


def followed(
    app: App, applied: Mapping[str, Any], planned: Mapping[str, Any], timeout: float | None
) -> Answer:
    """Follows the nodes of an inventory that was applied, and its rolls; not at all without a
    timeout."""
    rolls = applied.get("rolls") or []
    removed = _removed(planned)
    out = app.out
    if timeout is None:
        lines = [
            f"revision {applied['revision']} is wanted now",
            *map(begun_line, rolls),
            *waiting_lines(applied),
        ]
        return Answer({**applied, "converged": None, "nodes": []}, tuple(lines))
    later = {name for roll in rolls for name in roll["nodes"]}
    watch = Watch([n for n in applied["changed"] if n not in removed and n not in later], converged)
    out.progress_line(
        f"revision {applied['revision']}; following {count_of(len(watch.names), 'node')}, at most "
        f"{timeout:.0f} s"
    )
    arrived = follow(app.head, watch, out, timeout)
    rolled = follow_rolls(app, rolls, timeout)

    def show(out: Output) -> None:
        print_summary(watch, out, timeout)
        rolled.print(out)
        for line in waiting_lines(applied):
            out.line(line)

    well = arrived and rolled.code == OK
    document = {
        **applied,
        **rolled.document,
        "converged": well,
        "nodes": [s.to_record() for s in watch.nodes.values()],
    }
    return Answer(document, show, OK if well else FAILED)


def show_plan(out: Output, planned: Mapping[str, Any], at_once: bool = False) -> None:
    """Prints a plan as a table; nodes with the same change and the same way are one row. `at_once`:
    nothing goes by a roll."""
    for warning in planned.get("warnings") or []:
        out.note(_warning(warning), RED)
    for record in planned.get("networks") or []:
        change = Change.from_record(record)
        out.line(f"network {change.node}: {_network(change)}")
    for source in planned.get("files") or []:
        out.line(_source(source))
    empty = "no node changes" if _others(planned) else "nothing to change"
    out.table(_COLUMNS, _plan_rows(planned), empty=empty)
    _show_new(out, planned["plans"])
    _show_rolls(out, planned, at_once)
    notes = [
        *map(_taken_back, planned.get("taken_back") or []),
        *map(_elsewhere, planned.get("secrets") or []),
    ]
    for note in notes:
        out.note(note)


def _others(planned: Mapping[str, Any]) -> bool:
    """Whether anything changes that is no node."""
    return bool(planned.get("networks") or planned.get("files"))


def _warning(warning: Mapping[str, Any]) -> str:
    place = f"{warning['file']}:{warning['line']}: " if warning["line"] else ""
    return f"{place}{warning['message']}"


def _source(source: Mapping[str, Any]) -> str:
    """What changes in a file that nodes get."""
    return (
        f"files: {source['path']} {_SOURCE[source['action']]}, +{source['added']} "
        f"-{source['removed']} lines, for {count_of(source['nodes'], 'node')}; "
        "`layercake files diff RANGE` shows it"
    )


def _plan_rows(planned: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The changes of nodes, those that are alike in one row."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    plans = {plan["node"]: plan for plan in planned["plans"]}
    for record in planned["changes"]:
        change = Change.from_record(record)
        row = (change.action.value, _what(change), _way(plans.get(change.node)))
        rows.setdefault(row, []).append(change.node)
    return [(fold(nodes), *row) for row, nodes in rows.items()]


def _show_new(out: Output, plans: Sequence[Mapping[str, Any]]) -> None:
    for adopt, text in _ADOPT.items():
        if new := [plan["node"] for plan in plans if plan.get("adopt") == adopt]:
            out.line(f"{fold(new)}: new; one that is found running {text}")


def _show_rolls(out: Output, planned: Mapping[str, Any], at_once: bool) -> None:
    for line in passed_over_lines(planned):
        out.line(line)
    rolls = planned.get("rolls") or []
    for roll in rolls:
        how = "at once" if at_once else f"by a roll, {_plan(roll['plan'])}"
        out.line(f"{fold(roll['nodes'])}: to {', '.join(roll['images']) or 'no images'} {how}")
    if rolls and planned["at_once"]:
        out.line(f"{fold(planned['at_once'])}: other images at once, nothing runs there")


def _plan(plan: Mapping[str, Any]) -> str:
    parts = [
        f"canary {plan['canary']}" if plan["canary"] else "",
        f"batches of {plan['batch']}" if plan["batch"] else "",
        f"at most {plan['max_unavailable']} switch at a time" if plan["max_unavailable"] else "",
        f"on failure {plan['on_failure']}",
    ]
    return ", ".join(filter(None, parts))


def _taken_back(back: Mapping[str, Any]) -> str:
    images, to = (", ".join(back[key]) or "no images" for key in ("images", "to"))
    return (
        f"{fold(back['nodes'])}: rolled to {images} since; this inventory takes them back to {to}"
    )


def _elsewhere(entry: Mapping[str, Any]) -> str:
    return f"{entry['node']}: its secret goes to {entry['to']}, and went to {entry['from']}"


def _network(change: Change) -> str:
    if change.action is Action.REMOVE:
        return "is removed"
    if change.action is Action.ADD:
        return "is new, " + ", ".join(
            f"{name} {show_value(new)}" for name, (_, new) in change.fields.items()
        )
    return ", ".join(
        f"{name}: {show_value(old)} -> {show_value(new)}"
        for name, (old, new) in change.fields.items()
    )


def _what(change: Change) -> str:
    if change.action is Action.REMOVE:
        return ""
    if change.action is Action.ADD:
        values = {name: new for name, (_, new) in change.fields.items() if name in _SHOWN_OF_NEW}
        return ", ".join(f"{name} {show_value(value)}" for name, value in values.items())
    return ", ".join(
        f"{name}: {show_value(old)} -> {show_value(new)}"
        for name, (old, new) in change.fields.items()
    )


def _way(planned: Mapping[str, Any] | None) -> str:
    if planned is None:
        return ""
    if planned.get("blocked"):
        return f"blocked: {planned['blocked']}"
    if planned.get("found_running"):
        return "found running: left alone until `layercake node take RANGE`"
    chain: Sequence[str] = planned.get("chain") or ()
    later: Sequence[str] = planned.get("at_boot") or ()
    if later and not chain:
        return f"{', '.join(later)} at the next boot"
    return " > ".join(chain) + (f"; {', '.join(later)} at the next boot" if later else "") or (
        "is there already"
    )
