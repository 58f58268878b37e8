"""Manual pages and shell completion, out of the command tree: what `layercake --help` says, nothing
is written twice.

There is a page for the program and one for each of its commands, with the commands inside it.
Completion is click's own: the shell asks the program.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Iterator

import click
from click.shell_completion import get_completion_class

from layercake.cli.main import cli

PROGRAM = "layercake"
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/layercake",
    "zsh": "usr/share/zsh/vendor-completions/_layercake",
    "fish": "usr/share/fish/vendor_completions.d/layercake.fish",
}


def completions() -> dict[str, str]:
    """The shells' completion scripts, by their paths."""
    scripts = {}
    for shell, path in COMPLETIONS.items():
        completion_class = get_completion_class(shell)
        if completion_class is None:
            raise LookupError(shell)
        scripts[path] = (
            inspect.cleandoc(
                completion_class.source_template
                % completion_class(cli, {}, PROGRAM, "_LAYERCAKE_COMPLETE").source_vars()
            )
            + "\n"
        )
    return scripts


def manual(version: str, seconds: int) -> dict[str, str]:
    """The manual pages of section 1, by their names. `seconds` since 1970 is their date."""
    date = time.strftime("%Y-%m-%d", time.gmtime(seconds))
    root = click.Context(cli, info_name=PROGRAM)
    names = cli.list_commands(root)
    pages = {
        f"{PROGRAM}.1": "\n".join(
            _page(cli, root, version, date, [f"{PROGRAM}-{name}" for name in names])
        )
    }
    for name in names:
        command = cli.get_command(root, name)
        if command is not None:
            context = click.Context(command, info_name=name, parent=root)
            pages[f"{PROGRAM}-{name}.1"] = "\n".join(
                _page(command, context, version, date, [PROGRAM])
            )
    return {name: text + "\n" for name, text in pages.items()}


def _page(
    command: click.Command, context: click.Context, version: str, date: str, others: list[str]
) -> Iterator[str]:
    title = context.command_path.replace(" ", "-")
    yield f'.TH {title.upper()} 1 {date} "Layercake {version}" "Layercake"'
    yield f".SH NAME\n{title} \\- {_text(command.get_short_help_str(200).rstrip('.'))}"
    yield f".SH SYNOPSIS\n{_usage(command, context)}"
    yield ".SH DESCRIPTION"
    yield from _body(command, context)
    inner = (
        []
        if command is cli or not isinstance(command, click.Group)
        else list(_inner(command, context))
    )
    if inner:
        yield ".SH COMMANDS"
        for one, below in inner:
            yield f".SS {_usage(one, below)}"
            yield from _body(one, below, ".PP\nOptions:")
    if command is cli:
        yield ".SH COMMANDS"
        for name in cli.list_commands(context):
            subcommand = cli.get_command(context, name)
            if subcommand is not None:
                yield f".TP\n.B {_text(name)}\n{_text(subcommand.get_short_help_str(200))}"
    if command.epilog:
        yield f".SH NOTES\n.nf\n{_text(command.epilog.replace(chr(8), '').strip())}\n.fi"
    yield ".SH SEE ALSO\n" + ",\n".join(f".BR {_text(name)} (1)" for name in others)


def _inner(
    group: click.Group, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        below = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _inner(command, below)
        else:
            yield command, below


def _body(command: click.Command, context: click.Context, before: str = "") -> Iterator[str]:
    """What it does, and its options."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        preformatted = "\b" in paragraph  # click's mark: the lines stay as they are
        text = _text(paragraph.replace("\b\n", "").strip())
        yield f".nf\n{text}\n.fi" if preformatted else f".PP\n{' '.join(text.split())}"
    options = [p.get_help_record(context) for p in command.params if isinstance(p, click.Option)]
    records = [record for record in options if record]
    if records:
        yield before or ".SH OPTIONS"
        for names, meaning in records:
            yield f".TP\n.B {_text(names)}\n{_text(' '.join(meaning.split()))}"


def _usage(command: click.Command, context: click.Context) -> str:
    return _text(" ".join([context.command_path, *command.collect_usage_pieces(context)]))


def _text(text: str) -> str:
    """Plain text for roff(7): nothing in it is a request or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)
