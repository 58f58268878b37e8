"""`layercake image`: what is in the store, and what nodes run; `image build` is in
images_build.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from layercake.base.text import count_of, grouped
from layercake.client.command import FAILED, OK, Answer, App, command, nodes_argument, yes_option
from layercake.client.confirm import confirm_images, current_user
from layercake.client.http import LONG_S, path_segment
from layercake.client.output import Column, Output, format_size, format_time, short_digest
from layercake.client.watch import Watch, follow, print_summary, runs_wanted_images
from layercake.features.images.build_commands import (
    build,
    container_file,
    show_privileges,
    split_command,
    variables,
)
from layercake.features.rolls.commands import (
    at_option,
    at_request,
    begun_line,
    follow_rolls,
    plan_options,
    roll_request,
    start_roll,
)
from layercake.inventory.ranges import fold
from layercake.kraken.errors import InputError

_LIST = (
    Column("NAME"),
    Column("DIGEST"),
    Column("SIZE", right=True),
    Column("CREATED"),
    Column("SYSTEMD"),
    Column("USED BY", flexible=True),
)
_HISTORY = (
    Column("DIGEST"),
    Column("SIZE", right=True),
    Column("ADDED"),
    Column("CONTENT"),
    Column("WANTED BY", flexible=True),
)
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_SHOWN = 50


@click.group()
def image() -> None:
    """System images: the store, and rolling nodes to another image."""


image.add_command(build)


@command(image, "list")
def list_(app: App) -> Answer:
    """List the images in the store."""
    answer = app.head.get("/v1/images")
    rows = [
        [
            i["name"],
            short_digest(i["digest"]),
            format_size(i["size"]),
            format_time(i["created"]),
            "yes" if i["container"].get("systemd") else "no",
            fold(i["used_by"]) or "-",
        ]
        for i in answer["images"]
    ]
    return Answer(
        answer,
        lambda out: out.table(
            _LIST, rows, empty="no images; `layercake image add NAME FILE` adds one"
        ),
    )


@command(image)
@click.argument("name")
@click.argument("file")
@click.option(
    "--systemd/--no-systemd",
    default=True,
    show_default=True,
    help="Whether systemd is the container's init.",
)
@click.option(
    "--command", "init", help="What to run as init, with its arguments; quoted as in a shell."
)
@click.option(
    "--env",
    "environment",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable for the container; may be repeated. No secrets.",
)
@click.option(
    "--workdir", default="/", show_default=True, help="The directory that the command starts in."
)
@click.option(
    "--stop-timeout",
    type=click.FloatRange(0, 3600),
    default=10.0,
    show_default=True,
    help="Seconds to stop in before it is killed.",
)
@click.option(
    "--container",
    "more",
    type=click.Path(),
    help="A YAML file with more of the container: health, mounts, depends, ...",
)
@click.option(
    "--restart",
    type=click.Choice(["on-failure", "never", "always"]),
    default="on-failure",
    show_default=True,
)
def add(
    app: App,
    name: str,
    file: str,
    systemd: bool,
    init: str | None,
    environment: tuple[str, ...],
    workdir: str,
    stop_timeout: float,
    more: str | None,
    restart: str,
) -> Answer:
    """Add the squashfs FILE (a path on the head) to the store as NAME. A known name then means the
    new content; nodes that want it are not touched until they are rolled."""
    request = {
        # The head has a working directory of its own.
        "path": file if app.target.url else str(Path(file).expanduser().absolute()),
        "name": name,
        "systemd": systemd,
        "command": split_command(init),
        "env": variables(environment),
        "workdir": workdir,
        "stop_timeout_s": stop_timeout,
        "restart": restart,
        **container_file(more),
    }

    answer = app.head.post("/v1/images", request, timeout=LONG_S)
    added = answer["image"]

    def show(out: Output) -> None:
        out.line(f"{added['name']}: {short_digest(added['digest'])}, {format_size(added['size'])}")
        show_privileges(out, added)

    return Answer(answer, show)


@command(image)
@click.argument("name")
@yes_option
def remove(app: App, name: str, yes: bool) -> Answer:
    """Remove the image NAME from the store. Refused while a node wants it."""
    path = f"/v1/images/{path_segment(name)}"
    app.must_confirm(f"Remove image {name}?", yes)
    app.head.delete(path)
    return Answer({"removed": name}, f"{name}: removed")


@command(image)
@yes_option
def prune(app: App, yes: bool) -> Answer:
    """Delete what images' names pointed to before, unless a node or a roll still needs it."""
    app.must_confirm("Delete all earlier contents that no node and no roll needs?", yes)
    answer = app.head.delete("/v1/contents/unused")
    deleted = answer["deleted"]
    return Answer(
        answer,
        lambda out: out.lines(
            "\n".join([*(f"{digest}: deleted" for digest in deleted), f"{len(deleted)} deleted"])
        ),
    )


@command(image)
@click.argument("a")
@click.argument("b")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help=f"All files; else at most {_SHOWN} of each kind of change.",
)
def diff(app: App, a: str, b: str, everything: bool) -> Answer:
    """What is different in image B: Debian packages by version, and files. An earlier version of a
    name is NAME@DIGEST (its beginning is enough; see `layercake image history`)."""
    answer = app.head.get("/v1/images/diff", a=a, b=b, timeout=LONG_S)

    def show(out: Output) -> None:
        packages = answer["packages"]
        files = answer["files"]
        if not any(packages.values()) and not any(files.values()):
            out.line("no difference")
        for kind, sign in _SIGNS.items():
            for p in packages[kind]:
                out.line(
                    f"{sign} package {p['name']} "
                    f"{p['from'] + ' -> ' + p['to'] if kind == 'changed' else p['version']}"
                )
        for kind, sign in _SIGNS.items():
            listed = files[kind] if everything else files[kind][:_SHOWN]
            for f in listed:
                out.line(f"{sign} {f['path'] or '/'} {_detail(kind, f)}")
            if len(listed) < len(files[kind]):
                out.line(
                    f"{sign} ... {count_of(len(files[kind]) - len(listed), 'more file')} {kind}; "
                    "see --all"
                )
        if answer.get("left_out"):
            more = count_of(answer["left_out"], "more file")
            out.line(f"... and {more}, which the head does not list")

    return Answer(answer, show)


@command(image)
@click.argument("name")
def sbom(app: App, name: str) -> Answer:
    """What the image NAME is made of, as a CycloneDX 1.5 document (JSON): the packages of Debian,
    Alpine and Python in it. An earlier version of a name is NAME@DIGEST."""
    answer = app.head.get(f"/v1/images/{path_segment(name)}/sbom", timeout=LONG_S)
    return Answer(answer, json.dumps(answer, indent=1))


def _detail(kind: str, file: dict[str, Any]) -> str:
    if kind != "changed":
        return (
            f"({file['kind']}{', ' + format_size(file['size']) if file['kind'] == 'file' else ''})"
        )
    sizes = (
        f", {format_size(file['from'])} -> {format_size(file['to'])}"
        if file["from"] != file["to"]
        else ""
    )
    return f"({', '.join(file['what'])}{sizes})"


@command(image)
@click.argument("name")
def history(app: App, name: str) -> Answer:
    """What NAME points to and pointed to before, newest first."""
    answer = app.head.get(f"/v1/images/{path_segment(name)}/history")
    rows = [
        [
            short_digest(v["digest"]),
            format_size(v["size"]),
            format_time(v["created"]),
            "kept" if v["kept"] else "deleted",
            fold(v["used_by"]) or "-",
        ]
        for v in answer["versions"]
    ]
    return Answer(answer, lambda out: out.table(_HISTORY, rows))


@command(image)
@nodes_argument
@click.argument("name", metavar="IMAGE")
@click.option(
    "--replace", help="The image whose place it takes; all images of the nodes if not given."
)
@plan_options
@click.option(
    "--on-stage-failure",
    type=click.Choice(["skip", "fail"]),
    help="When a node cannot take the content beforehand: pass it over, or end the roll before it "
    "begins.",
)
@click.option(
    "--at-once",
    is_flag=True,
    help="All nodes at once, without batches and gates, however many they are.",
)
@click.option(
    "--save", "file", metavar="FILE", help="Write IMAGE into the inventory FILE, unless it fails."
)
@at_option
@click.option("--no-wait", is_flag=True, help="Do not wait until the nodes run it.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    help="Seconds to wait.",
)
@yes_option
def roll(
    app: App,
    /,
    nodes: str,
    name: str,
    replace: str | None,
    at_once: bool,
    file: str | None,
    at: str | None,
    no_wait: bool,
    timeout: float,
    yes: bool,
    **options: Any,
) -> Answer:
    """Move the nodes of RANGE to IMAGE, and follow until each runs it.

    A roll makes the image ready on every node before any switches, and each batch has to pass its
    gate before the next one begins. Without any of the options from --batch to --stages, a few
    nodes switch at once, and more than that go as a roll: as `roll` in the inventory says, or else
    config.yaml.
    """
    later = at_request(at)
    if later and (file or at_once):
        raise InputError(
            f"cannot roll at a time with {'--save' if file else '--at-once'}",
            hint="roll now, or leave it out; `--batch 100%` has all nodes go together then",
        )
    request = roll_request(nodes, name, replace, at_once, options)
    how = " at once" if at_once else " in batches" if request is not None else ""
    confirm_images(app, nodes, name, how, yes, always=at_once)
    saved = _saving(app, file, nodes, name, replace)
    if request is not None:
        return saved(start_roll(app, {**request, **later}, not no_wait, timeout))
    asked = {"range": nodes, "image": name, "replace": replace, "at_once": at_once, **later}
    return saved(_roll(app, asked, None if no_wait or later else timeout))


def _saving(
    app: App, file: str | None, nodes: str, image: str, replace: str | None
) -> Callable[[Answer], Answer]:
    """What adds to a roll's answer that it was saved to an inventory. Raises InputError, before
    anything is done, if that file cannot say what the roll makes of the nodes."""
    if file is None:
        return lambda answer: answer
    from layercake.client.saving.files import in_force
    from layercake.client.saving.images import Rolled, edit_text, save

    rolled = Rolled(
        [n["name"] for n in app.head.get("/v1/nodes", range=nodes)["nodes"]], image, replace
    )
    edit_text(in_force(app.head, file), file, rolled)

    def add(answer: Answer) -> Answer:
        if answer.code != OK:
            app.out.note(f"{file} is as it was")
            return answer
        lines = save(Path(file), rolled)
        where = f"line {', '.join(map(str, lines))}" if lines else "it"
        text = f"{file}: {image} stands in {where} now"

        def show(out: Output) -> None:
            answer.print(out)
            out.line(text)

        return Answer(
            {**answer.document, "saved": {"file": file, "lines": lines}}, show, answer.code
        )

    return add


def _roll(app: App, asked: Mapping[str, Any], timeout: float | None) -> Answer:
    """Has the head move nodes as it sees fit, and follows them; not at all without a timeout."""
    answer = app.head.post("/v1/images/roll", {**asked, "by": current_user()})
    names = answer["nodes"]
    rolls = answer.get("rolls") or []
    _note_passed_over(app, answer.get("passed_over") or ())
    if timeout is None and rolls:
        return Answer({"names": names, "rolls": rolls}, tuple(map(begun_line, rolls)))
    if timeout is None:
        return Answer(
            {"names": names, "done": None, "nodes": []},
            f"{fold(names)}: shall run {asked['image']}",
        )
    if rolls:
        followed = follow_rolls(app, rolls, timeout)
        return Answer({"names": names, **followed.document}, followed.show, followed.code)
    watch = Watch(_up(app, asked["range"], set(names)), runs_wanted_images)
    arrived = follow(app.head, watch, app.out, timeout)
    document = {
        "names": names,
        "done": arrived,
        "nodes": [s.to_record() for s in watch.nodes.values()],
    }
    return Answer(
        document, lambda out: print_summary(watch, out, timeout), OK if arrived else FAILED
    )


def _note_passed_over(app: App, rows: Sequence[Mapping[str, str]]) -> None:
    """Says which nodes keep their images, and why: those with the same reason together."""
    for why, names in grouped((row["why"], row["node"]) for row in rows).items():
        app.out.note(f"{fold(names)}: passed over, {why}")


def _up(app: App, nodes: str, rolled: Collection[str]) -> list[str]:
    """Those of the nodes that were `rolled` which are wanted up: one that is wanted off takes the
    new image when it boots, and is not waited for."""
    views = [v for v in app.head.get("/v1/nodes", range=nodes)["nodes"] if v["name"] in rolled]
    off = [v["name"] for v in views if v["wanted"] == "off"]
    if off:
        app.out.note(f"{fold(off)}: wanted off, will run it when up")
    return [v["name"] for v in views if v["name"] not in off]


@click.group("keys")
def keys() -> None:
    """The nodes' keys of the image store, when it is in Ceph: each node has one of its own."""


image.add_command(keys)


@command(keys)
@nodes_argument
def rotate(app: App, nodes: str) -> Answer:
    """Make new keys for NODES. What they have attached goes on with the old ones, until their next
    boot."""
    answer = app.head.post("/v1/images/keys", {"range": nodes}, timeout=LONG_S)
    return Answer(
        answer,
        f"{fold(answer['nodes'])}: new keys from now on; once these nodes have booted, "
        f"`layercake image keys drop {nodes}` ends the old ones",
    )


@command(keys)
@nodes_argument
@yes_option
def drop(app: App, nodes: str, yes: bool) -> Answer:
    """End the keys that NODES had before, and those of nodes that are gone. A node that still uses
    one loses its images."""
    app.must_confirm(f"Have {nodes} booted since their keys were made anew?", yes)
    answer = app.head.post("/v1/images/keys", {"range": nodes, "drop_old": True}, timeout=LONG_S)
    return Answer(answer, f"ended {count_of(len(answer['dropped']), 'old key')}")
