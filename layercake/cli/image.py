"""`layercake image`: add, list, roll, remove."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import yaml

from imageapi.spec.container import CONTAINER_FIELDS
from layercake.cli.app import FAILED, OK, App, json_option, pass_app, yes_option
from layercake.cli.client import LONG_S, Client, quoted
from layercake.cli.output import Column, moment, short, size
from layercake.cli.roll import begin, request_of
from layercake.cli.watch import Watch, follow, rolled, summary
from layercake.inventory.ranges import fold
from layercake.kraken.errors import InputError

_LIST = (Column("NAME"), Column("DIGEST"), Column("SIZE", right=True), Column("CREATED"), Column("SYSTEMD"),
         Column("USED BY", flexible=True))


@click.group()
def image() -> None:
    """System images: the store, and rolling nodes to another image."""


@image.command("list")
@json_option
@pass_app
def list_(app: App) -> int:
    """List the images in the store."""

    async def action(head: Client) -> int:
        answer = await head.get("/v1/images")
        if app.out.json:
            app.out.document(answer)
        else:
            rows = [[i["name"], short(i["digest"]), size(i["size"]), moment(i["created"]),
                     "yes" if i.get("container", i).get("systemd") else "no", fold(i["used_by"]) or "-"] for i in answer["images"]]
            app.out.table(_LIST, rows, empty="no images; `layercake image add NAME FILE` adds one")
        return OK

    return app.run(action)


@image.command()
@click.argument("name")
@click.argument("file")
@click.option("--systemd/--no-systemd", default=True, show_default=True, help="Whether systemd is the container's init.")
@click.option("--command", "command", help="What to run as init, with its arguments; quoted as in a shell.")
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE",
              help="A variable for the container; may be repeated. No secrets.")
@click.option("--workdir", default="/", show_default=True, help="The directory that the command starts in.")
@click.option("--stop-timeout", type=click.FloatRange(0, 3600), default=10.0, show_default=True,
              help="Seconds to stop in before it is killed.")
@click.option("--container", "more", type=click.Path(), help="A YAML file with more of the container: health, mounts, depends, ...")
@click.option("--restart", type=click.Choice(["on-failure", "never", "always"]), default="on-failure", show_default=True)
@json_option
@pass_app
def add(app: App, name: str, file: str, systemd: bool, command: str | None, environment: tuple[str, ...], workdir: str,
        stop_timeout: float, more: str | None, restart: str) -> int:
    """Add the squashfs FILE (a path on the head) to the store as NAME. A known name then means the new content; nodes that
    want it are not touched until they are rolled."""
    request = {
        # The head has a working directory of its own.
        "path": file if app.target.url else str(Path(file).expanduser().absolute()),
        "name": name, "systemd": systemd, "command": words(command), "env": variables(environment),
        "workdir": workdir, "stop_timeout_s": stop_timeout, "restart": restart,
        **container_file(more),
    }

    async def action(head: Client) -> int:
        answer = await head.post("/v1/images", request, timeout=LONG_S)
        if app.out.json:
            app.out.document(answer)
        else:
            added = answer["image"]
            app.out.line(f"{added['name']}: {short(added['digest'])}, {size(added['size'])}")
        return OK

    return app.run(action)


def container_file(path: str | None) -> dict[str, Any]:
    """The container fields in a YAML file, which go before what the options say. Raises InputError; the head checks the values."""
    if path is None:
        return {}
    try:
        found = yaml.safe_load(Path(path).read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"cannot use --container {path}: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(found, dict) or not found:
        raise InputError(f"cannot use --container {path}: a mapping is expected", hint="for example: health: {kind: tcp, port: 22}")
    for field in found:
        if field not in CONTAINER_FIELDS:
            known = ", ".join(CONTAINER_FIELDS)
            raise InputError(f"cannot use --container {path}: there is no field {field!r}", hint=f"known: {known}")
    return found


def words(command: str | None) -> list[str] | None:
    """The words of --command. Raises InputError."""
    if command is None:
        return None
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"cannot use --command: {error}") from error
    if not words:
        raise InputError("cannot use --command: it is empty")
    return words


def variables(environment: tuple[str, ...]) -> dict[str, str]:
    """The variables of --env. Raises InputError."""
    found = {}
    for item in environment:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InputError("cannot use --env: NAME=VALUE is expected")
        found[name] = value
    return found


@image.command()
@click.argument("name")
@yes_option
@json_option
@pass_app
def remove(app: App, name: str, yes: bool) -> int:
    """Remove the image NAME from the store. Refused while a node wants it."""

    async def action(head: Client) -> int:
        path = f"/v1/images/{quoted(name)}"
        if not app.confirm(f"Remove image {name}?", yes):
            return FAILED
        await head.delete(path)
        if app.out.json:
            app.out.document({"removed": name})
        else:
            app.out.line(f"{name}: removed")
        return OK

    return app.run(action)


@image.command()
@yes_option
@json_option
@pass_app
def prune(app: App, yes: bool) -> int:
    """Delete what images' names pointed to before, unless a node or a roll still needs it."""

    async def action(head: Client) -> int:
        if not app.confirm("Delete all earlier contents that no node and no roll needs?", yes):
            return FAILED
        answer = await head.delete("/v1/contents/unused")
        if app.out.json:
            app.out.document(answer)
        else:
            for digest in answer["deleted"]:
                app.out.line(f"{digest}: deleted")
            app.out.line(f"{len(answer['deleted'])} deleted")
        return OK

    return app.run(action)


@image.command()
@click.argument("nodes", metavar="RANGE")
@click.argument("name", metavar="IMAGE")
@click.option("--replace", help="The image whose place it takes; all images of the nodes if not given.")
@click.option("--batch", metavar="N|P%", help="So many nodes, or this share of a stage, go together and pass a gate together.")
@click.option("--max-unavailable", metavar="N|P%", help="No more of them switch at a time.")
@click.option("--canary", type=click.IntRange(min=1), metavar="N", help="So many nodes go first, as a batch of their own.")
@click.option("--health-timeout", "health_timeout_s", type=click.FloatRange(0, 86400), metavar="S",
              help="A node must be well for so long after its switch, and its health checks pass; 5 if not given.")
@click.option("--on-failure", type=click.Choice(["rollback", "pause"]), help="When a node fails: take its batch back, or pause.")
@click.option("--on-stage-failure", type=click.Choice(["skip", "fail"]),
              help="When a node cannot take the content beforehand: pass it over, or end the roll before it begins.")
@click.option("--stages", metavar="GROUP,..", help="Inventory groups that go one after the other; `all` at the end is the rest.")
@click.option("--no-wait", is_flag=True, help="Do not wait until the nodes run it.")
@click.option("--timeout", type=click.FloatRange(min=0), default=600.0, show_default=True, help="Seconds to wait.")
@json_option
@pass_app
def roll(app: App, /, nodes: str, name: str, replace: str | None, no_wait: bool, timeout: float, **options: Any) -> int:
    """Move the nodes of RANGE to IMAGE, and follow until each runs it.

    Without any of the options from --batch to --stages, all nodes switch at once. With one of them the image is made ready on
    every node before any switches, and each batch has to pass its gate before the next one begins.
    """
    out = app.out
    request = request_of(nodes, name, replace, options)

    async def action(head: Client) -> int:
        if request is not None:
            return await begin(app, head, request, not no_wait, timeout)
        answer: dict[str, Any] = await head.post("/v1/images/roll", {"range": nodes, "image": name, "replace": replace})
        waiting = [] if no_wait else await _up(app, head, nodes)
        watch = Watch([n for n in answer["nodes"] if n in waiting], rolled)
        there = await follow(head, watch, out, timeout)
        if out.json:
            views = [s.to_record() for s in watch.seen.values()]
            out.document({"names": answer["nodes"], "done": None if no_wait else there, "nodes": views})
        elif no_wait:
            out.line(f"{fold(answer['nodes'])}: shall run {name}")
        else:
            summary(watch, out, timeout)
        return OK if there else FAILED

    return app.run(action)


async def _up(app: App, head: Client, nodes: str) -> list[str]:
    """The nodes that are wanted up: one that is wanted off takes the new image when it boots, and is not waited for."""
    views = (await head.get("/v1/nodes", range=nodes))["nodes"]
    off = [v["name"] for v in views if v["goal"].get("power") == "OFF"]
    if off:
        app.out.note(f"{fold(off)}: wanted off, will run it when up")
    return [v["name"] for v in views if v["name"] not in off]
