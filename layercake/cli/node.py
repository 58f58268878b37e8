"""`layercake node`: list, show, explain, clear, up, off, logs, exec."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import click

from layercake.cli.app import FAILED, OK, App, confirm_stop, json_option, pass_app, yes_option
from layercake.cli.client import Client, quoted
from layercake.cli.output import Column, moment, seconds, short
from layercake.inventory.ranges import fold
from layercake.kraken.errors import OperationFailed, Unreachable

VARIABLES = ("power", "boot", "run", "image", "busy")
_LIST = (Column("NAME"), Column("STATUS", styled=True), *(Column(v.upper(), styled=True) for v in VARIABLES), Column("IMAGES"),
         Column("IP"), Column("SEEN", right=True), Column("DETAIL", flexible=True))
HISTORY = (Column("TIME"), Column("NODE"), Column("KIND"), Column("SEVERITY", styled=True), Column("TEXT", flexible=True))


CONTAINERS = (Column("CONTAINER"), Column("DIGEST"), Column("STATE", styled=True), Column("HEALTH", styled=True),
              Column("UP", right=True), Column("RETRIES", right=True), Column("LAST ERROR", styled=True),
              Column("ERROR", flexible=True))


@click.group()
def node() -> None:
    """Nodes: how they are, why, and what is wanted of them."""


@node.command("list")
@click.argument("nodes", metavar="[RANGE]", default="")
@json_option
@pass_app
def list_(app: App, nodes: str) -> int:
    """List nodes: all, or those of RANGE (n[0-3], @group)."""

    async def action(head: Client) -> int:
        answer = await head.get("/v1/nodes", range=nodes)
        if app.out.json:
            app.out.document(answer)
        else:
            app.out.table(_LIST, [_row(n) for n in answer["nodes"]], empty="no nodes; `layercake apply FILE` brings some")
        return OK

    return app.run(action)


def _row(view: Mapping[str, Any]) -> list[object]:
    return [
        view["name"], view["status"], *(view["state"].get(v, "-") for v in VARIABLES), images(view), view["ip"],
        seconds(view["last_seen_s"]), view["status_text"],
    ]


def images(view: Mapping[str, Any]) -> str:
    """The images of a node: what runs, and what shall run if that is something else."""
    running = {(i["name"], i["digest"]) for i in view["images"]["running"]}
    wanted = {(i["name"], i["digest"]) for i in view["images"]["wanted"]}
    same_name = {name for name, _ in running} & {name for name, _ in wanted}

    def text(found: set[tuple[str, str]]) -> str:
        # A digest is shown only where the name alone would hide that it changes.
        return ",".join(f"{n}@{short(d)}" if n in same_name and running != wanted else n for n, d in sorted(found)) or "-"

    return text(running) if running == wanted else f"{text(running)} -> {text(wanted)}"


@node.command()
@click.argument("name")
@click.option("--history", type=click.IntRange(0, 1000), default=20, show_default=True, help="How many events to show.")
@json_option
@pass_app
def show(app: App, name: str, history: int) -> int:
    """Show the node NAME and what happened to it last."""

    async def action(head: Client) -> int:
        answer = await head.get(f"/v1/nodes/{quoted(name)}")
        if app.out.json:
            app.out.document(answer)
            return OK
        for label, value in _facts(answer["node"]):
            app.out.line(f"{label:<10} {value}")
        containers = answer["node"].get("containers") or []
        if containers:
            app.out.line("")
            app.out.table(CONTAINERS, [container_row(c) for c in containers])
        events = answer["history"][-history:] if history else []
        if events:
            app.out.line("")
            app.out.table(HISTORY, [event_row(e) for e in events])
        return OK

    return app.run(action)


def _facts(view: Mapping[str, Any]) -> list[tuple[str, str]]:
    def pairs(values: Mapping[str, str]) -> str:
        return " ".join(f"{k}={v}" for k, v in values.items()) or "-"

    bmc, active = view["bmc"], view["active"]
    facts = [
        ("name", view["name"]), ("id", view["id"]),
        ("status", view["status"] + (f" ({view['status_text']})" if view["status_text"] else "")),
        ("is", pairs(view["state"])), ("wanted", pairs(view["goal"])), ("images", images(view)), ("address", view["ip"]),
        ("macs", ", ".join(view["macs"])), ("firmware", view["firmware"]),
        ("bmc", f"{bmc['driver']} {bmc['address']}" if bmc else "none"), ("last seen", _ago(view["last_seen_s"])),
        ("unchanged", f"for {seconds(view['since_s'])}"), ("revision", str(view["revision"])),
    ]
    if active:
        facts.append(("doing", f"{active['mutation']}, attempt {active['attempt']}, for {seconds(active['seconds'])}, "
                               f"{seconds(active['deadline_s'])} left"))
    return facts


def container_row(view: Mapping[str, Any]) -> list[object]:
    """A container as a row of CONTAINERS."""
    up = seconds(view["started_s"]) if view["state"] == "running" and view["started_s"] is not None else "-"
    again = f" (again in {seconds(view['retry_in_s'])})" if view["retry_in_s"] is not None else ""
    error = (view["error"].splitlines() or ["-"])[0] + again
    return [view["name"], short(view["digest"]), view["state"], view["health"] or "-", up, view["retries"],
            "-" if view["last_error"] == "NOERROR" else view["last_error"], error]


def _ago(value: float | None) -> str:
    return "never" if value is None else f"{seconds(value)} ago"


def event_row(event: Mapping[str, Any]) -> list[object]:
    """An event as a row of HISTORY."""
    return [moment(event["at"]), event.get("node") or "-", event["kind"], event["severity"], event["text"]]


@node.command()
@click.argument("name")
@json_option
@pass_app
def explain(app: App, name: str) -> int:
    """Say where the node NAME is, where it should be, what blocks it and what was tried."""

    async def action(head: Client) -> int:
        answer = await head.get(f"/v1/nodes/{quoted(name)}/explain")
        if app.out.json:
            app.out.document(answer)
        else:
            for line in str(answer["text"]).splitlines():
                app.out.line(line)
        return OK

    return app.run(action)


def _say(app: App, answer: Mapping[str, Any], text: str) -> int:
    names = answer.get("nodes") or []
    if app.out.json:
        app.out.document(answer)
    else:
        app.out.line(f"{fold(names)}: {text}" if names else text)
    return OK


@node.command()
@click.argument("nodes", metavar="RANGE")
@json_option
@pass_app
def clear(app: App, nodes: str) -> int:
    """Take the nodes of RANGE out of quarantine; they are tried anew."""

    async def action(head: Client) -> int:
        return _say(app, await head.post("/v1/nodes/clear", {"range": nodes}), "cleared")

    return app.run(action)


@node.command()
@click.argument("nodes", metavar="RANGE")
@json_option
@pass_app
def up(app: App, nodes: str) -> int:
    """Want the nodes of RANGE up."""

    async def action(head: Client) -> int:
        return _say(app, await head.post("/v1/nodes/state", {"range": nodes, "state": "up", "force": False}), "wanted up")

    return app.run(action)


@node.command()
@click.argument("nodes", metavar="RANGE")
@click.option("--force", is_flag=True, help="BUSY nodes too, and without waiting for their images to stop.")
@yes_option
@json_option
@pass_app
def off(app: App, nodes: str, force: bool, yes: bool) -> int:
    """Want the nodes of RANGE off; their images are stopped first."""

    async def action(head: Client) -> int:
        if not await confirm_stop(app, head, nodes, "Stop", yes):
            return FAILED
        return _say(app, await head.post("/v1/nodes/state", {"range": nodes, "state": "off", "force": force}), "wanted off")

    return app.run(action)


@node.command()
@click.argument("name")
@click.option("--container", default="", help="The image whose log it is; the first one if not given.")
@click.option("--lines", type=click.IntRange(1, 10000), default=200, show_default=True)
@click.option("--follow", "-f", "following", is_flag=True, help="Go on as the log grows, until interrupted.")
@json_option
@pass_app
def logs(app: App, name: str, container: str, lines: int, following: bool) -> int:
    """Show the log of a container on the node NAME."""

    async def action(head: Client) -> int:
        path = f"/v1/nodes/{quoted(name)}"
        if following:
            async for data in head.stream("GET", f"{path}/follow", container=container, lines=lines):
                app.out.piece(data)
            return OK
        answer = await head.get(f"{path}/logs", container=container, lines=lines)
        if app.out.json:
            app.out.document(answer)
        else:
            app.out.raw(str(answer["text"]))
        return OK

    return app.run(action)


@node.command("exec")
@click.argument("name")
@click.argument("command", nargs=-1, required=True)
@click.option("--container", default="", help="The image to run it in; without, it runs in minOS itself.")
@click.option("--timeout", type=click.FloatRange(0.1, 3600), default=60.0, show_default=True, help="Seconds until it is killed.")
@pass_app
def execute(app: App, name: str, command: tuple[str, ...], container: str, timeout: float) -> int:
    """Run COMMAND on the node NAME (write -- before it) and end as it ends. The head's history says who ran what."""

    async def action(head: Client) -> int:
        body = {"command": list(command), "container": container, "timeout_s": timeout}
        rest, status = b"", None
        async for data in head.stream("POST", f"/v1/nodes/{quoted(name)}/exec", body=body):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                status = _output(app, json.loads(line), status)
        if rest:
            status = _output(app, json.loads(rest), status)
        if status is None:
            raise Unreachable(f"cannot say how the command on {name} ended: the answer was cut off")
        return status

    return app.run(action)


def _output(app: App, said: Mapping[str, Any], status: int | None) -> int | None:
    """Prints a piece of a command's output; returns its exit status once that is known."""
    if "exit" in said:
        return int(said["exit"]) if int(said["exit"]) >= 0 else 128 - int(said["exit"])
    if "error" in said:
        raise OperationFailed(f"cannot finish the command: {said['error']}", hint="give it more with --timeout")
    app.out.piece(base64.b64decode(said.get("out") or said.get("err") or ""), error="err" in said)
    return status
