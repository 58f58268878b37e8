"""`layercake node`: list, show, explain, clear, up, off, set, rename; the others are elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from layercake.base.text import count_of
from layercake.client.columns import (
    column_of,
    fields_by_name,
    fields_of,
    has_text,
    images_text,
    kind_of,
    list_columns,
    list_row,
    list_variables,
    sort_nodes,
    variables_of,
)
from layercake.client.command import (
    OK,
    Answer,
    App,
    command,
    nodes_argument,
    reason_option,
    yes_option,
)
from layercake.client.confirm import confirm_stop, current_user, stays_off, stays_up
from layercake.client.http import path_segment
from layercake.client.output import Column, Output, format_duration, short_digest
from layercake.features.events.commands import HISTORY, event_row
from layercake.features.guard.commands import maintenance, remedy, take_over
from layercake.features.nodes.compare_commands import compare
from layercake.features.nodes.hardware_commands import hardware
from layercake.features.releases.commands import release
from layercake.features.remote.commands import copy, execute, logs
from layercake.inventory.ranges import fold
from layercake.kraken.errors import Refused

if TYPE_CHECKING:
    from layercake.client.saving.files import EntryFile

_ONE = re.compile(r"[A-Za-z0-9._-]+")  # the name of one node, and no range
_CONTAINERS = (
    Column("CONTAINER"),
    Column("DIGEST"),
    Column("STATE", styled=True),
    Column("HEALTH", styled=True),
    Column("UP", right=True),
    Column("RETRIES", right=True),
    Column("LAST ERROR", styled=True),
    Column("ERROR", flexible=True),
)


@click.group()
def node() -> None:
    """Nodes: how they are, why, and what is wanted of them."""


for _command in (maintenance, take_over, remedy, release, logs, execute, copy, compare, hardware):
    node.add_command(_command)


@command(node, "list")
@click.argument("nodes", metavar="[RANGE]", default="")
@click.option(
    "--where",
    default="",
    metavar="QUERY",
    help="Only those that it means: 'status!=converged and unchanged>5m'.",
)
@click.option(
    "--columns",
    default="",
    metavar="NAME,..",
    help="Of name, status, ip, groups, seen, kernel, roll, memory, label:KEY, power, and more.",
)
@click.option(
    "--sort",
    "order",
    default="",
    metavar="NAME",
    help="In the order of this column; -NAME the other way round.",
)
@click.option(
    "--search",
    default="",
    metavar="TEXT",
    help="Only those of which a name, address, serial number, label, group or image has this.",
)
@click.option("--no-header", is_flag=True, help="Leave out the line with the columns' names.")
@click.option("--fold", "folded", is_flag=True, help="Only their names, as one range.")
def list_(
    app: App,
    nodes: str,
    where: str,
    columns: str,
    order: str,
    search: str,
    no_header: bool,
    folded: bool,
) -> Answer:
    """List nodes: all, or those of RANGE (n[0-3], @group)."""
    chosen = [name for name in columns.split(",") if name]
    answer = _listed(app, nodes, where, search, [*chosen, *filter(None, [order])], bool(chosen))
    variables = variables_of(answer)
    if order:
        answer["nodes"] = sort_nodes(answer["nodes"], order, variables)
    kinds = [kind_of(name, variables) for name in chosen]

    def show(out: Output) -> None:
        views = answer["nodes"]
        if not views:
            out.note(_nothing(app, nodes, where, search))
        elif folded:
            out.line(fold([view["name"] for view in views]))
        elif chosen:
            rows = [[kind.text(view) for kind in kinds] for view in views]
            out.table(list(map(column_of, chosen)), rows, header=not no_header)
        else:
            own = list_variables(answer)
            rows = [list_row(view, own) for view in views]
            out.table(list_columns(own), rows, header=not no_header)

    return Answer(answer, show)


def _listed(
    app: App, nodes: str, where: str, search: str, names: Sequence[str], some: bool
) -> dict[str, Any]:
    """The nodes of a list; of them what the columns `names` need, if only `some` are asked for."""
    bare = [name.removeprefix("-") for name in names]
    asked = fields_of(bare) if some and not search else ""
    answer: dict[str, Any] = app.head.get("/v1/nodes", range=nodes, where=where, fields=asked)
    if not asked and (more := fields_by_name(bare)):
        rest = app.head.get("/v1/nodes", range=nodes, where=where, fields=f"name,{more}")["nodes"]
        by_name = {view["name"]: view for view in rest}
        answer["nodes"] = [{**v, **by_name.get(v["name"], {})} for v in answer["nodes"]]
    if search:
        answer["nodes"] = [view for view in answer["nodes"] if has_text(view, search)]
    return answer


def _nothing(app: App, nodes: str, where: str, search: str) -> str:
    """Why a list is empty."""
    total = app.head.get("/v1/status")["nodes"]["total"]
    if not total:
        return "no nodes; `layercake apply FILE` brings some"
    known = count_of(total, "node")
    which = f"the nodes of {nodes}" if nodes else known
    asked = " and ".join(filter(None, (where, f"has {search!r} in it" if search else "")))
    return f"of {which}, none is so: {asked}" if asked else f"{nodes} names none of {known}"


@command(node)
@click.argument("name")
@click.option(
    "--history",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    help="How many events to show.",
)
def show(app: App, name: str, history: int) -> Answer:
    """Show the node NAME and what happened to it last."""
    answer = app.head.get(f"/v1/nodes/{path_segment(name)}")
    view = answer["node"]
    events = answer["history"][-history:] if history else []

    def show_node(out: Output) -> None:
        for label, value in _facts(view):
            out.line(f"{label:<10} {value}")
        if view.get("containers"):
            out.line("")
            out.table(_CONTAINERS, [_container_row(c) for c in view["containers"]])
        if events:
            out.line("")
            out.table(HISTORY, [event_row(e) for e in events])

    return Answer({**answer, "history": events}, show_node)


def _facts(view: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a node is and does, as (label, text)."""
    bmc = view["bmc"]
    seen = view["last_seen_s"]
    yield "name", view["name"]
    yield "id", view["id"]
    yield "status", view["status"] + (f" ({view['status_text']})" if view["status_text"] else "")
    yield "is", _pairs(view["state"])
    yield "wanted", _pairs(view["goal"])
    yield "images", images_text(view["images"])
    yield from _network_facts(view)
    yield from _boot_facts(view.get("boots") or {}, view.get("boot_time") or {})
    yield "bmc", f"{bmc['driver']} {bmc['address']}" if bmc else "none: a person switches it"
    yield "last seen", "never" if seen is None else f"{format_duration(seen)} ago"
    yield "unchanged", f"for {format_duration(view['since_s'])}"
    yield "revision", str(view["revision"])
    if view["active"]:
        yield "doing", _active(view["active"])


def _network_facts(view: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """By what a node is reached and boots, and what it has reported of that."""
    yield "address", view["ip"] + (f" in {view['network']}" if view.get("network") else "")
    yield "macs", ", ".join(view["macs"])
    yield "firmware", view["firmware"]
    if view.get("profile"):
        yield "profile", view["profile"]
    for card in view.get("cards") or ():
        yield "card", _card(card)
    for one in view.get("interfaces") or ():
        yield "interface", interface_line(one)
    if view.get("clock"):
        yield "clock", f"{view['clock']['off_ms']:+.1f} ms off {view['clock']['server']}"


def _boot_facts(sets: Mapping[str, Any], times: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The boot sets of a node, and how long it takes to boot."""
    runs = sets.get("runs")
    if runs:
        own = sets["agent"] in (None, runs)
        yield "boot set", runs + ("" if own else f", its agent that of {sets['agent']}")
    if sets.get("next") not in (None, runs):
        yield "boots next", sets["next"]
    if times.get("usual_s") is not None:
        usual = format_duration(times["usual_s"])
        longest = format_duration(times["longest_s"])
        yield "boots in", f"{usual} usually, {longest} at most, in {times['boots']} boots"
    if times.get("now_s") is not None:
        yield "boot", f"for {format_duration(times['now_s'])}"


def _pairs(values: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items()) or "-"


def _card(card: Mapping[str, Any]) -> str:
    if card["driver"]:
        return f"{card['name']} {card['mac']} {card['driver']}"
    needs = f", it needs {' or '.join(card['absent'])}" if card["absent"] else ""
    return f"{card['id']} at {card['slot']}: no driver{needs}"


def _active(active: Mapping[str, Any]) -> str:
    """The mutation that is under way."""
    left = "" if active["deadline_s"] is None else f", {format_duration(active['deadline_s'])} left"
    return (
        f"{active['mutation']}, attempt {active['attempt']}, for "
        f"{format_duration(active['seconds'])}{left}"
    )


def interface_line(one: Mapping[str, Any]) -> str:
    """An interface as a line."""
    legs = ", ".join(f"{leg['name']} {leg['state']}" for leg in one["legs"])
    columns = [
        one["name"],
        one["kind"],
        one["state"],
        one["mac"],
        f"mtu {one['mtu']}" if one["mtu"] else "",
        *one["addresses"],
        f"({legs})" if legs else "",
        f"- {one['trouble']}" if one["trouble"] else "",
    ]
    return " ".join(filter(None, columns))


def _container_row(view: Mapping[str, Any]) -> list[object]:
    up = (
        format_duration(view["started_s"])
        if view["state"] == "running" and view["started_s"] is not None
        else "-"
    )
    again = (
        f" (again in {format_duration(view['retry_in_s'])})"
        if view["retry_in_s"] is not None
        else ""
    )
    error = (view["error"].splitlines() or ["-"])[0] + again
    return [
        view["name"],
        short_digest(view["digest"]),
        view["state"],
        view["health"] or "-",
        up,
        view["retries"],
        "-" if view["last_error"] == "NOERROR" else view["last_error"],
        error,
    ]


@command(node)
@click.argument("name")
def explain(app: App, name: str) -> Answer:
    """Say where the node NAME is, where it should be, what blocks it and what was tried."""
    one = path_segment(name, f"`layercake explain '{name}'` says it of several nodes")
    answer = app.head.get(f"/v1/nodes/{one}/explain")
    return Answer(answer, lambda out: out.lines(answer["text"]))


def _done(answer: Mapping[str, Any], text: str) -> Answer:
    names = answer.get("nodes") or []
    return Answer(answer, f"{fold(names)}: {text}" if names else text)


@command(node)
@nodes_argument
def clear(app: App, nodes: str) -> Answer:
    """Take the nodes of RANGE out of quarantine; they are tried anew."""
    return _done(app.head.post("/v1/nodes/clear", {"range": nodes}), "cleared")


@command(node)
@nodes_argument
@yes_option
def revoke(app: App, nodes: str, yes: bool) -> Answer:
    """End the sessions of the nodes of RANGE, with their keys and certificates. They are left alone
    until `node clear`, and start anew then."""
    app.must_confirm(
        f"End the sessions of {nodes}? What runs there goes on, and is no longer looked after.", yes
    )
    return _done(
        app.head.post("/v1/nodes/revoke", {"range": nodes, "by": current_user()}), "revoked"
    )


@command(node)
@nodes_argument
def up(app: App, nodes: str) -> Answer:
    """Want the nodes of RANGE up."""
    answer = app.head.post("/v1/nodes/state", {"range": nodes, "state": "up", "force": False})
    return _done(answer, f"wanted up; {stays_up(answer['nodes'])}")


@command(node)
@nodes_argument
@click.option(
    "--force", is_flag=True, help="BUSY nodes too, and without waiting for their images to stop."
)
@yes_option
def off(app: App, nodes: str, force: bool, yes: bool) -> Answer:
    """Want the nodes of RANGE off; their images are stopped first."""
    confirm_stop(app, nodes, "Stop", yes)
    answer = app.head.post("/v1/nodes/state", {"range": nodes, "state": "off", "force": force})
    return _done(answer, f"wanted off; {stays_off(answer['nodes'])}")


save_option = click.option(
    "--save",
    "file",
    metavar="FILE",
    default="",
    envvar="LAYERCAKE_INVENTORY",
    show_envvar=True,
    help="Write it into the inventory FILE too, whose comments and order stay.",
)


@command(node, "set")
@click.argument("name", metavar="RANGE")
@click.argument("values", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--unset",
    multiple=True,
    metavar="KEY",
    help="As if nobody said anything of KEY. May be given several times.",
)
@click.option(
    "--confirm-secrets",
    is_flag=True,
    help="Agree that its secrets go to another place than before.",
)
@save_option
@reason_option
def set_(
    app: App,
    name: str,
    values: tuple[str, ...],
    unset: tuple[str, ...],
    confirm_secrets: bool,
    file: str,
    reason: str,
) -> Answer:
    """Change the entries of the nodes of RANGE in the inventory in force, and no other node:
    KEY=VALUE, VALUE as in the inventory. Either all are changed or none.

    Keys in a mapping are written bmc.address. The next `apply` wants what stands in your
    inventory: --save writes it there, if FILE says what is in force.
    """
    # Imported here, and below: the other commands need none of it.
    from layercake.client.inventory_file import waiting_lines
    from layercake.client.saving.entries import edit_entry
    from layercake.client.saving.files import EntryFile
    from layercake.features.rolls.commands import begun_line

    wanted = dict(_value(assignment) for assignment in values)
    if not wanted and not unset:
        raise click.UsageError("say what to change: KEY=VALUE, or --unset KEY")
    body = {
        "set": wanted,
        "unset": list(unset),
        "confirm_secrets": confirm_secrets,
        "by": current_user(),
        **({"reason": reason} if reason else {}),
    }
    if file and not _ONE.fullmatch(name):
        app.out.note(f"{file} is as it was: only the entry of one node is saved")
        file = ""
    saving = None
    if file:
        saving = EntryFile(app.head, file, lambda text: edit_entry(text, file, name, wanted, unset))
        saving.refuse_others(name)
    path, body = _patch(name, body)
    answer = app.head.patch(path, body)
    code, rest = _saved(saving, rolls=bool(answer["rolls"]))
    names = fold(answer["changed"]) or name
    done = f"{names} is changed{rest}" if answer["changed"] or file else f"{name} has that already"
    lines = (done, *map(begun_line, answer["rolls"]), *waiting_lines(answer))
    return Answer(answer, lines, code)


@command(node)
@click.argument("nodes", metavar="RANGE")
@click.argument("names", metavar="NAMES")
@click.option("--plan", "plan_only", is_flag=True, help="Only show what it would do.")
@save_option
@reason_option
@yes_option
def rename(
    app: App, nodes: str, names: str, plan_only: bool, file: str, reason: str, yes: bool
) -> Answer:
    """Give the nodes of RANGE other names: NAMES are as many, in the same order.

    All that is known of a node stays, and one that runs is not touched: it calls itself by its new
    name from its next boot on. --save writes the names into your inventory, which the next `apply`
    needs.
    """
    from layercake.client.saving.entries import rename_entries
    from layercake.client.saving.files import EntryFile

    body = {"range": nodes, "to": names}
    planned = app.head.post("/v1/nodes/rename/plan", body)
    if planned.get("refused"):
        raise Refused(planned["refused"])
    lines = tuple(map(_renamed_line, planned["renamed"]))
    if plan_only:
        return Answer(planned, lines)
    new = {one["node"]: one["to"] for one in planned["renamed"]}
    saving = (
        EntryFile(app.head, file, lambda text: rename_entries(text, file, new)) if file else None
    )
    app.out.lines("\n".join(lines))
    app.must_confirm(f"Rename {len(new)} node{'' if len(new) == 1 else 's'}?", yes)
    body |= {"by": current_user(), **({"reason": reason} if reason else {})}
    answer = app.head.post("/v1/nodes/rename", body)
    code, rest = _saved(saving)
    return Answer(answer, f"{fold(new)}: renamed to {fold(new.values())}{rest}", code)


def _saved(saving: EntryFile | None, *, rolls: bool = False) -> tuple[int, str]:
    """Writes the file, if there is one: the exit code, and what there is to say."""
    if saving is None:
        return OK, "; write it into the inventory too"
    return saving.write(rolls=rolls)


def _renamed_line(one: Mapping[str, Any]) -> str:
    when = ": at once in lists and in the DNS; its own host name at the next boot"
    return f"{one['node']} -> {one['to']}{when if one['running'] else ''}"


def _patch(nodes: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The path and the body by which the entry of one node, or of those of a range, is changed."""
    if _ONE.fullmatch(nodes):
        return f"/v1/nodes/{path_segment(nodes)}", body
    return "/v1/nodes", {**body, "range": nodes}


def _value(word: str) -> tuple[str, Any]:
    from layercake.inventory.problems import Problems
    from layercake.inventory.yaml_marks import parse, plain

    key, equals, value = word.partition("=")
    if not equals or not key:
        raise click.UsageError(
            f"cannot use {word}: KEY=VALUE is expected, VALUE as in the inventory"
        )
    problems = Problems(word)
    parsed = parse(value, problems)
    problems.raise_if_any()
    return key, None if parsed is None else plain(parsed)
