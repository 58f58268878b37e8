"""`layercake report`: what operators ask each morning, in one page, as text or HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from layercake.base.text import count_of
from layercake.client.command import Answer, App, command
from layercake.client.output import (
    BOLD,
    RED,
    STYLES,
    YELLOW,
    Column,
    Output,
    clean,
    format_duration,
    format_time,
    parse_duration,
)
from layercake.features.guard.commands import alarms, outage_line
from layercake.features.rolls.commands import OVER, roll_line
from layercake.inventory.ranges import fold
from layercake.kraken.errors import LayercakeError, OperationFailed

TITLES: Mapping[str, tuple[str, str]] = {
    "failed": ("Failed", RED),
    "slow": ("Slow", YELLOW),
    "held": ("Held back", YELLOW),
    "warned": ("Warnings", YELLOW),
    "security": ("Security", RED),
    "changed": ("Changed", ""),
}
CRITICAL = 2
"""The exit code of what is critical, by the guidelines for plugins of Nagios."""
CHECK_S = 10.0
"""Seconds that a head has to answer where its health is asked for."""
CERTIFICATE_DAYS = {"head": 3}
"""A certificate that ends within so many days is a warning, 14 if it is not here: that of the head
renews itself."""
_SHOWN_NODES = 200
"""Characters of a node set; of a longer one the number is told, as what is cut off is another."""
_TEXT = 160
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h2{font-size:1.1rem;border-bottom:1px solid #8884;margin-top:1.6rem}
table{border-collapse:collapse;width:100%}
td{padding:.25rem .6rem .25rem 0;vertical-align:top}
td:first-child{text-align:right;white-space:nowrap;font-weight:600}
small{color:#666}.failed,.security,.now{color:#b00020}:root{color-scheme:light dark}
@media (prefers-color-scheme:dark){small{color:#aaa}.failed,.security,.now{color:#ff8a8a}}"""

Report = Mapping[str, Any]


def now_lines(report: Report) -> Iterator[str]:
    """How the site is now: how many nodes are how, then what is out of order."""
    counts = sorted(report["nodes"].items(), key=lambda pair: -pair[1])
    yield (
        f"{count_of(sum(report['nodes'].values()), 'node')}: "
        f"{', '.join(f'{count} {name}' for name, count in counts) or 'none'}"
    )
    for outage in report["outages"]:
        yield outage_line(outage)
    if report["frozen"]:
        yield f"FROZEN by {report['frozen']['by']}: {report['frozen']['reason']}"
    if not report["database"]["well"]:
        yield f"the database is unwell: {report['database']['trouble']}"
    for certificate in report["certificates"]:
        yield f"certificate of {certificate['what']}: good for {certificate['days']:.0f} days more"


def what(line: Mapping[str, Any]) -> str:
    """A kind, and of which nodes."""
    names = [name for name in line["nodes"] if name]
    nodes = fold(names)
    of = (
        f" of {nodes if len(nodes) <= _SHOWN_NODES else count_of(len(names), 'node')}"
        if names
        else f" of {line['node']}"
        if line["node"] and line["count"] == 1
        else ""
    )
    return f"{line['kind']}{of}"


def last(line: Mapping[str, Any]) -> str:
    """When it happened last, and what was said."""
    node = f"{line['node']}: " if line["node"] and line["count"] > 1 else ""
    return f"{format_time(line['last'])}  {node}{line['text'][:_TEXT]}"


def title(report: Report) -> str:
    """What it is a report of."""
    return f"{report['head']}, {format_time(report['since'])} to {format_time(report['until'])}"


def show_report(report: Report, out: Output) -> None:
    """The report on a terminal."""
    out.line(title(report), BOLD)
    for number, line in enumerate(now_lines(report)):
        out.line(line, RED if number else "")
    for name, lines in report["sections"].items():
        if lines:
            out.line("")
            out.line(TITLES[name][0], f"{BOLD};{TITLES[name][1]}" if TITLES[name][1] else BOLD)
        for line in lines:
            out.line(f"{line['count']:>6}  {what(line)}")
            out.line(f"        {last(line)}", STYLES["debug"])
    if report["rolls"]:
        out.line("")
        out.line("Rolls", BOLD)
    for roll in report["rolls"]:
        out.line(f"        {format_time(roll['at'])}  {roll_line(roll)}")
    if not any(report["sections"].values()):
        out.line("nothing failed, was slow or was held back")


def page(report: Report) -> str:
    """The report as a page of HTML, with nothing from elsewhere and no script in it: for a mail, or
    a directory of a web server."""

    def text(word: str) -> str:
        return html.escape(clean(word))

    first, *others = now_lines(report)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>Layercake, {text(title(report))}</title><style>{_STYLE}</style>",
        f"<h1>Layercake</h1><p>{text(title(report))}</p><p>{text(first)}</p>",
        *(f"<p class=now>{text(line)}</p>" for line in others),
    ]
    for name, lines in report["sections"].items():
        rows = "".join(
            f"<tr><td>{line['count']}<td>{text(what(line))}<br>"
            f"<small>{text(line['meaning'])}<br>{text(last(line))}</small>"
            for line in lines
        )
        parts += (
            [f"<h2 class={name}>{text(TITLES[name][0])}</h2><table>{rows}</table>"] if lines else []
        )
    if report["rolls"]:
        rows = "".join(
            f"<tr><td>{text(format_time(roll['at']))}<td>{text(roll_line(roll))}"
            for roll in report["rolls"]
        )
        parts.append(f"<h2>Rolls</h2><table>{rows}</table>")
    return "\n".join(parts) + "\n"


@command()
@click.option(
    "--last",
    "last_",
    default="1d",
    show_default=True,
    metavar="SPAN",
    help="Of so many hours or days until now: 12h, 7d.",
)
@click.option(
    "--html",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page of HTML to this file instead.",
)
def report(app: App, last_: str, file: Path | None) -> Answer:
    """Report what failed, was slow, was held back and changed since yesterday, and how the site is
    now."""
    answer = app.head.get("/v1/report", hours=math.ceil(parse_duration(last_) / 3600))
    if file is None:
        return Answer(answer, lambda out: show_report(answer, out))
    try:
        file.write_text(page(answer), encoding="utf-8")
    except OSError as error:
        raise OperationFailed(f"cannot write {file}: {error.strerror}") from None
    return Answer(answer, f"written to {file}")


_ALWAYS = ("converged", "working", "quarantined")
"""What is told of nodes also if there are none; the others if there are any."""
_SERVICES = (
    Column("SERVICE"),
    Column("STATE", styled=True),
    Column("PID", right=True),
    Column("RESTARTS", right=True),
    Column("SINCE", right=True),
    Column("HEALTH", flexible=True),
)


def _database(view: Mapping[str, Any]) -> str:
    if view["well"]:
        return "well"
    return (
        f"UNWELL for {format_duration(view['since_s'])}: {view['trouble']}; "
        f"{count_of(view['waiting'], 'event')} not written yet"
    )


@command()
@click.option(
    "--check",
    is_flag=True,
    help="For Nagios and the like: a line on the head itself, and the exit code 0 if it is well, 1 "
    "with a warning, 2 if it is not well or does not answer.",
)
def status(app: App, check: bool) -> Answer:
    """Show how the head, its services and the nodes are."""
    if check:
        return _checked(app)
    answer = app.head.get("/v1/status")
    going = [one for one in app.head.get("/v1/rolls")["rolls"] if one["state"] not in OVER]

    def show(out: Output) -> None:
        out.line(
            f"head      version {answer['version']}, up {format_duration(answer['uptime_s'])}, "
            "epoch "
            f"{answer['epoch']}"
        )
        _show_heads(out, answer.get("heads") or {})
        out.line(_nodes_line(answer["nodes"]))
        _show_guard(out, answer["guard"])
        for one in going:
            out.line(roll_line(one))
        _show_troubles(out, answer)
        out.line("")
        rows = [_service_row(service) for service in answer["services"]]
        out.table(_SERVICES, rows, empty="no services")

    return Answer(answer, show)


def _checked(app: App) -> Answer:
    """How the head itself is, for a monitoring that reads exit codes. What is wrong with nodes is
    for `explain`."""
    try:
        answer = app.head.get("/v1/status", timeout=CHECK_S)
    except LayercakeError as error:
        return Answer({}, f"CRITICAL: {error.message}", CRITICAL)
    found = list(_head_troubles(answer))
    critical = [text for text, style in found if style == RED]
    warnings = [text for text, style in found if style != RED]
    word = "OK"
    code = 0
    if critical:
        word = "CRITICAL"
        code = CRITICAL
    elif warnings:
        word = "WARNING"
        code = 1
    text = "; ".join([*critical, *warnings]) or f"up {format_duration(answer['uptime_s'])}"
    return Answer(answer, f"{word}: {text}", code)


def _head_troubles(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with the head itself, each with its style: RED for what is critical."""
    yield from alarms({**answer, "guard": {"frozen": None}}, outages=False)
    for text in answer.get("warnings") or ():
        yield text, YELLOW
    for certificate in answer.get("certificates") or ():
        days = certificate["days"]
        if days < CERTIFICATE_DAYS.get(certificate["what"], 14):
            text = f"certificate of {certificate['what']}: {days:.0f} days"
            yield text, YELLOW if days >= 1 else RED


def _nodes_line(nodes: Mapping[str, Any]) -> str:
    names = sorted(nodes, key=lambda name: name not in _ALWAYS)
    counts = [f"{nodes[n]} {n}" for n in names if n in _ALWAYS or (n != "total" and nodes[n])]
    return f"nodes     {nodes['total']}: {', '.join(counts)}"


def _show_heads(out: Output, heads: Mapping[str, Any]) -> None:
    """The heads of a site with several."""
    if roles := heads.get("roles"):
        out.line(f"heads     {', '.join(roles)}")
    if refuses := heads.get("refuses"):
        out.line(f"REFUSED   {refuses}")
    for line in heads.get("troubles", ()):
        out.line(f"WARNING   {line}")


def _show_guard(out: Output, guard: Mapping[str, Any]) -> None:
    """What keeps the head from working on nodes: a freeze, the queue of boots, outages."""
    if guard["frozen"]:
        out.line(f"FROZEN    by {guard['frozen']['by']}: {guard['frozen']['reason']}")
    boots = guard.get("boots") or {"waiting": 0}
    if boots["waiting"]:
        known = boots["left_s"] is not None
        left = f"; all are up in about {format_duration(boots['left_s'])}" if known else ""
        out.line(
            f"boots     {boots['booting']} under way, {boots['waiting']} wait for their turn{left}"
        )
    for outage in guard["outages"]:
        out.line(outage_line(outage))


def _show_troubles(out: Output, answer: Mapping[str, Any]) -> None:
    """How the head itself is: its database, its loop, its certificates, and its warnings."""
    if "database" in answer:  # a head from before an upgrade does not say
        out.line(f"database  {_database(answer['database'])}")
    if (loop := answer.get("loop")) and not loop["well"]:
        out.line(f"LATE      for {format_duration(loop['since_s'])}: {loop['trouble']}")
    if certificates := answer.get("certificates"):
        ages = [f"{c['what']}: {c['days']:.0f} days" for c in certificates]
        out.line(f"certificates  {', '.join(ages)}")
    if levels := answer.get("log_levels"):
        shown = ", ".join(f"{name} {level}" for name, level in sorted(levels.items()))
        out.line(f"logs      {shown} (until the head starts anew)")
    for warning in answer.get("warnings") or []:
        out.line(f"WARNING   {warning}")


def _service_row(service: Mapping[str, Any]) -> list[object]:
    return [
        service["name"],
        service["state"],
        service["pid"] or "-",
        service["restarts"],
        format_duration(service["since_s"]),
        service["health"] or "",
    ]
