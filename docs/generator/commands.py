"""The command line, from click."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import click

from docs.generator.markdown import code, page, plain, table
from layercake.check.table import CHECKS
from layercake.cli.main import cli

_INTRO = """\
Exit status: 0 done; 1 failed, or not converged; 2 bad input; 3 the head cannot be reached; 4 refused; 130 interrupted.

Every command says the same with `--help`. With `--json` it prints one JSON document.
"""


_CHECKS = """\
What `layercake check` looks at, in the order in which it tells. Each has a name that stays, for `--only` and for programs.
[Check before the first boot](../howto/check-before-the-first-boot.md) says how to use it.

With `--json` it is one document: `checks` is a list of `name`, `severity` (`ok`, `warning` or `error`), `text`, `hint` and `nodes`
(a range, or empty); a check may say several things. `errors` and `warnings` are their numbers; `head` says whether a head runs.
"""


def checks_page() -> str:
    """Every check of `layercake check`."""
    return page(
        "Checks",
        _CHECKS,
        table(("Name", "Looks at"), [(code(check.name), plain(check.doc)) for check in CHECKS]),
    )


def cli_page() -> str:
    """Every command and every option."""
    return page("Command line", _INTRO, *_commands(cli, click.Context(cli, info_name="layercake")))


def _commands(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"## {context.command_path}", f"```text\n{usage}\n```"]
    parts += [
        plain(p) for p in inspect.cleandoc((command.help or "").replace("\b", "")).split("\n\n")
    ]
    options = [_option(p, context) for p in command.params if isinstance(p, click.Option)]
    if options:
        parts.append(table(("Option", "Value", "Meaning"), options).rstrip())
    if command.epilog:
        parts.append("```text\n" + command.epilog.replace("\b\n", "").strip() + "\n```")
    yield "\n\n".join(parts) + "\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _commands(inner, click.Context(inner, info_name=name, parent=context))


def _option(option: click.Option, context: click.Context) -> tuple[str, str, str]:
    """The row of an option. Made from its parts and not by click's own help, which differs from
    version to version."""
    names = ", ".join([*sorted(option.opts, key=len), *option.secondary_opts])
    notes = [option.help or ""]
    if option.required:
        notes.append("Required.")
    if option.multiple:
        notes.append("May be repeated.")
    if option.show_default:
        notes.append(f"Default: `{option.get_default(context)}`.")
    if option.envvar:
        notes.append(f"Environment: `{option.envvar}`.")
    return (
        code(names),
        code("" if option.is_flag else option.metavar or _kind(option.type)),
        plain(" ".join(filter(None, notes))),
    )


def _kind(kind: click.ParamType[Any]) -> str:
    """What an option takes: a choice, a range of numbers, or the name of the type."""
    if isinstance(kind, click.Choice):
        return " or ".join(map(str, kind.choices))
    if isinstance(kind, click.IntRange | click.FloatRange):
        if kind.min is not None and kind.max is not None:
            return f"{kind.min:g} to {kind.max:g}"
        return "number" if kind.min is None else f"at least {kind.min:g}"
    return {"text": "TEXT", "boolean": "", "integer": "number", "float": "number"}.get(
        kind.name, kind.name.upper()
    )
