"""`layercake image build`, and what an image's options say of its container."""

from __future__ import annotations

import contextlib
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from layercake.client.command import Answer, App, command
from layercake.client.http import LONG_S
from layercake.client.output import YELLOW, Output, clean, format_size, parse_duration, short_digest
from layercake.kraken.errors import InputError

if TYPE_CHECKING:
    from imageapi.build.build import Built, Options

# A disk, where /tmp may be memory; a directory of our own is made in it.
_SCRATCH = "/var/tmp"  # noqa: S108


def container_file(path: str | None) -> dict[str, Any]:
    """The container fields in a YAML file, which go before what the options say. Raises InputError;
    the head checks the values."""
    if path is None:
        return {}
    import yaml

    from imageapi.spec.container import CONTAINER_FIELDS

    try:
        fields = yaml.safe_load(Path(path).read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(
            f"cannot use --container {path}: {getattr(error, 'strerror', None) or error}"
        ) from None
    if not isinstance(fields, dict) or not fields:
        raise InputError(
            f"cannot use --container {path}: a mapping is expected",
            hint="for example: health: {kind: tcp, port: 22}",
        )
    for field in fields:
        if field not in CONTAINER_FIELDS:
            known = ", ".join(CONTAINER_FIELDS)
            raise InputError(
                f"cannot use --container {path}: there is no field {field!r}",
                hint=f"known: {known}",
            )
    return fields


def split_command(command: str | None) -> list[str] | None:
    """The words of --command. Raises InputError."""
    if command is None:
        return None
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise InputError(f"cannot use --command: {error}") from error
    if not arguments:
        raise InputError("cannot use --command: it is empty")
    return arguments


def variables(environment: tuple[str, ...]) -> dict[str, str]:
    """The variables of --env. Raises InputError."""
    variables = {}
    for item in environment:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InputError("cannot use --env: NAME=VALUE is expected")
        variables[name] = value
    return variables


def show_privileges(out: Output, image: Mapping[str, Any] | None) -> None:
    """Says what an image of the store has of its nodes themselves."""
    from imageapi.spec.privileges import PRIVILEGES

    for name in (image or {}).get("privileges", ()):
        out.line(f"  note: `{name}` gives it {PRIVILEGES.get(name, 'a privilege')}", YELLOW)


@command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("name")
@click.option(
    "--file",
    "dockerfile",
    type=click.Path(path_type=Path),
    help="The Dockerfile; SOURCE is then what it copies from.",
)
@click.option(
    "--build-arg",
    "build_args",
    multiple=True,
    metavar="NAME=VALUE",
    help="A Dockerfile's ARG; may be repeated.",
)
@click.option(
    "--systemd/--no-systemd",
    default=None,
    help="Whether systemd is the container's init; the image says so itself.",
)
@click.option(
    "--command",
    "init",
    help="What to run as init instead of the image's own; quoted as in a shell.",
)
@click.option(
    "--env",
    "environment",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable for the container. No secrets.",
)
@click.option(
    "--container",
    "more",
    type=click.Path(),
    help="A YAML file with more of the container: health, mounts, depends, ...",
)
@click.option(
    "--all-root",
    is_flag=True,
    help="Make all files root's: for a directory that a user has prepared.",
)
@click.option(
    "--cosign-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A public key (PEM): refuse an OCI image that cosign has not signed by it.",
)
@click.option(
    "--network",
    is_flag=True,
    help="Let a Dockerfile out to the network, for packages and registries.",
)
@click.option(
    "--timeout",
    default="4h",
    show_default=True,
    metavar="DURATION",
    help="How long each program of the build may take.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep the squashfs in this file and do not add it to the store; NAME is only for the hint "
    "how to.",
)
def build(
    app: App,
    source: Path,
    name: str,
    dockerfile: Path | None,
    build_args: tuple[str, ...],
    systemd: bool | None,
    init: str | None,
    environment: tuple[str, ...],
    more: str | None,
    all_root: bool,
    network: bool,
    cosign_key: Path | None,
    timeout: str,
    output: Path | None,
) -> Answer:
    """Build an image from SOURCE and add it to the store as NAME.

    SOURCE is a Dockerfile or a directory with one, an OCI archive or layout, an archive of `docker
    save`, a tar file of a root file system, or a directory that is one. Run it as root on the head.
    The same input gives the same digest. What a Dockerfile runs sees nothing of the head but SOURCE
    and the programs in /usr.
    """
    from imageapi.build.build import Options
    from imageapi.spec.names import NAME

    if not NAME.fullmatch(name):
        raise InputError(
            f"cannot build image {name[:80]!r}: a name is letters, digits, dots and dashes, with "
            "at most one :tag"
        )
    if app.target.url and output is None:
        raise InputError(
            "cannot add the image by --url: the head takes it from its own disk",
            hint="build on the head, or use --output and copy the file there",
        )
    variables(build_args)
    container = container_file(more)
    options = Options(
        dockerfile,
        build_args,
        all_root,
        systemd,
        tuple(split_command(init) or ()),
        tuple(variables(environment).items()),
        network,
        cosign_key,
        parse_duration(timeout),
    )
    if output is not None:
        return _answer(_build(source, output, options), name, None, output)
    app.head.get(
        "/v1/status"
    )  # rather than find out after a build of many minutes that there is no head
    with tempfile.TemporaryDirectory(prefix="layercake-build-", dir=_SCRATCH) as scratch:
        built = _build(source, Path(scratch) / "image.squashfs", options)
        request = {"path": str(built.path), "name": name, **built.container(), **container}
        return _answer(
            built, name, app.head.post("/v1/images", request, timeout=LONG_S)["image"], None
        )


def _build(source: Path, out: Path, options: Options) -> Built:
    from imageapi.build.build import build as build_image

    with _progress() as progress:
        return build_image(source, out, options, progress)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, float | None], None]]:
    """A bar on a terminal, a line for each step elsewhere; on standard error, where it disturbs no
    document."""
    if not sys.stderr.isatty():
        last = ""

        def show_step(what: str, done: float | None) -> None:
            nonlocal last
            if what != last:
                sys.stderr.write(clean(what) + "\n")
                sys.stderr.flush()
            last = what

        yield show_step
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=None)

        def draw(what: str, done: float | None) -> None:
            bar.update(
                task,
                description=clean(what),
                completed=done or 0.0,
                total=None if done is None else 1.0,
            )

        yield draw
        bar.update(task, description="done", completed=1.0, total=1.0)


def _answer(built: Built, name: str, added: Any, kept: Path | None) -> Answer:
    def show(out: Output) -> None:
        runs = (
            "systemd"
            if built.systemd and not built.command
            else shlex.join(built.command) or "/init"
        )
        out.line(
            f"{name}: {short_digest(built.digest)}, {format_size(built.size)}, from "
            f"{built.kind.value}, runs "
            f"{runs}"
        )
        for note in built.notes:
            out.line(f"  note: {note}", YELLOW)
        show_privileges(out, added)
        if kept:
            options = ["--systemd" if built.systemd else "--no-systemd"]
            options += ["--command", shlex.join(built.command)] if built.command else []
            options += [word for key, value in built.env for word in ("--env", f"{key}={value}")]
            options += ["--workdir", built.workdir] if built.workdir != "/" else []
            out.line(f"add it: layercake image add {shlex.join([name, str(kept), *options])}")

    document = {
        "image": added,
        "digest": built.digest,
        "size": built.size,
        "notes": built.notes,
        "source": built.kind.value,
        "container": built.container(),
        "file": str(kept) if kept else None,
    }
    return Answer(document, show)
