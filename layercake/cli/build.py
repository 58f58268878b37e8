"""`layercake image build|diff|history`: makes images, and says what is in them."""

from __future__ import annotations

import contextlib
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from imageapi.build.build import Built, Options
from imageapi.build.build import build as build_image
from imageapi.spec.names import NAME
from layercake.cli.app import OK, App, json_option, pass_app
from layercake.cli.client import LONG_S, Client, quoted
from layercake.cli.image import container_file, variables, words
from layercake.cli.output import Column, clean, moment, short, size
from layercake.inventory.ranges import fold
from layercake.kraken.errors import InputError

_HISTORY = (Column("DIGEST"), Column("SIZE", right=True), Column("ADDED"), Column("CONTENT"), Column("WANTED BY", flexible=True))
_SCRATCH = "/var/tmp"  # noqa: S108 (a disk, where /tmp may be memory; a directory of our own is made in it)
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_SHOWN = 50


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("name")
@click.option("--file", "dockerfile", type=click.Path(path_type=Path), help="The Dockerfile; SOURCE is then what it copies from.")
@click.option("--build-arg", "build_args", multiple=True, metavar="NAME=VALUE", help="A Dockerfile's ARG; may be repeated.")
@click.option("--systemd/--no-systemd", default=None, help="Whether systemd is the container's init; the image says so itself.")
@click.option("--command", help="What to run as init instead of the image's own; quoted as in a shell.")
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="A variable for the container. No secrets.")
@click.option("--container", "more", type=click.Path(), help="A YAML file with more of the container: health, mounts, depends, ...")
@click.option("--all-root", is_flag=True, help="Make all files root's: for a directory that a user has prepared.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False),
              help="Keep the squashfs in this file and do not add it to the store; NAME is only for the hint how to.")
@json_option
@pass_app
def build(app: App, source: Path, name: str, dockerfile: Path | None, build_args: tuple[str, ...], systemd: bool | None,
          command: str | None, environment: tuple[str, ...], more: str | None, all_root: bool, output: Path | None) -> int:
    """Build an image from SOURCE and add it to the store as NAME.

    SOURCE is a Dockerfile or a directory with one, an OCI archive or layout, an archive of `docker save`, a tar file of a
    root file system, or a directory that is one. Run it as root on the head. The same input gives the same digest.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"cannot build image {name[:80]!r}: a name is letters, digits, dots and dashes, with at most one :tag")
    if app.target.url and output is None:
        raise InputError("cannot add the image by --url: the head takes it from its own disk",
                         hint="build on the head, or use --output and copy the file there")
    variables(build_args)
    container = container_file(more)
    options = Options(dockerfile, build_args, all_root, systemd, tuple(words(command) or ()), tuple(variables(environment).items()))
    if output is not None:
        _say(app, _build(app, source, output, options), name, None, output)
        return OK

    async def reachable(head: Client) -> int:
        await head.get("/v1/status")
        return OK

    app.run(reachable)  # rather than find out after a build of many minutes
    with tempfile.TemporaryDirectory(prefix="layercake-build-", dir=_SCRATCH) as scratch:
        built = _build(app, source, Path(scratch) / "image.squashfs", options)

        async def add(head: Client) -> int:
            request = {"path": str(built.path), "name": name, **built.container(), **container}
            _say(app, built, name, await head.post("/v1/images", request, timeout=LONG_S), None)
            return OK

        return app.run(add)


def _build(app: App, source: Path, out: Path, options: Options) -> Built:
    with _progress(quiet=app.out.json) as progress:
        return build_image(source, out, options, progress)


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[str, float | None], None]]:
    """A bar on a terminal, a line for each step elsewhere, both on standard error."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if quiet or not console.is_terminal:
        last = ""

        def tell(what: str, done: float | None) -> None:
            nonlocal last
            if what != last and not quiet:
                sys.stderr.write(clean(what) + "\n")
                sys.stderr.flush()
            last = what

        yield tell
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=None)

        def draw(what: str, done: float | None) -> None:
            bar.update(task, description=Text(clean(what)).plain, completed=done or 0.0, total=None if done is None else 1.0)

        yield draw
        bar.update(task, description="done", completed=1.0, total=1.0)


def _say(app: App, built: Built, name: str, answer: Any, kept: Path | None) -> None:
    container = built.container()
    if app.out.json:
        document = {"image": answer["image"] if answer else None, "digest": built.digest, "size": built.size, "notes": built.notes,
                    "source": built.kind.value, "container": container, "file": str(kept) if kept else None}
        app.out.document(document)
        return
    runs = "systemd" if built.systemd and not built.command else shlex.join(built.command) or "/init"
    app.out.line(f"{name}: {short(built.digest)}, {size(built.size)}, from {built.kind.value}, runs {runs}")
    for note in built.notes:
        app.out.line(f"  note: {note}", "yellow")
    if kept:
        options = ["--systemd" if built.systemd else "--no-systemd"]
        options += ["--command", shlex.join(built.command)] if built.command else []
        options += [word for key, value in built.env for word in ("--env", f"{key}={value}")]
        options += ["--workdir", built.workdir] if built.workdir != "/" else []
        app.out.line(f"add it: layercake image add {shlex.join([name, str(kept), *options])}")


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--all", "everything", is_flag=True, help=f"All files; else at most {_SHOWN} of each kind of change.")
@json_option
@pass_app
def diff(app: App, a: str, b: str, everything: bool) -> int:
    """What is different in image B: Debian packages by version, and files. An earlier version of a name is NAME@DIGEST (its
    beginning is enough; see `layercake image history`)."""

    async def action(head: Client) -> int:
        answer = await head.get_long("/v1/images/diff", a=a, b=b)
        if app.out.json:
            app.out.document(answer)
            return OK
        packages, files = answer["packages"], answer["files"]
        if not any(packages.values()) and not any(files.values()):
            app.out.line("no difference")
        for kind, sign in _SIGNS.items():
            for p in packages[kind]:
                app.out.line(f"{sign} package {p['name']} {p['from'] + ' -> ' + p['to'] if kind == 'changed' else p['version']}")
        for kind, sign in _SIGNS.items():
            shown = files[kind] if everything else files[kind][:_SHOWN]
            for f in shown:
                app.out.line(f"{sign} {f['path'] or '/'} {_detail(kind, f)}")
            if len(shown) < len(files[kind]):
                app.out.line(f"{sign} ... {len(files[kind]) - len(shown)} more files {kind}; see --all")
        return OK

    return app.run(action)


def _detail(kind: str, file: dict[str, Any]) -> str:
    if kind != "changed":
        return f"({file['kind']}{', ' + size(file['size']) if file['kind'] == 'file' else ''})"
    sizes = f", {size(file['from'])} -> {size(file['to'])}" if file["from"] != file["to"] else ""
    return f"({', '.join(file['what'])}{sizes})"


@click.command()
@click.argument("name")
@json_option
@pass_app
def history(app: App, name: str) -> int:
    """What NAME points to and pointed to before, newest first."""

    async def action(head: Client) -> int:
        answer = await head.get(f"/v1/images/{quoted(name)}/history")
        if app.out.json:
            app.out.document(answer)
        else:
            rows = [[short(v["digest"]), size(v["size"]), moment(v["created"]), "kept" if v["kept"] else "deleted",
                     fold(v["used_by"]) or "-"] for v in answer["versions"]]
            app.out.table(_HISTORY, rows)
        return OK

    return app.run(action)
