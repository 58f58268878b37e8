"""The program `layercake`. Exit codes: 0 ok, 1 an operation failed or nodes did not converge, 2
usage or bad input, 3 the head is unreachable, 4 refused; 130 interrupted."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

import click

from layercake import __version__
from layercake.client.command import BAD_INPUT, FAILED, JSON, OK, REFUSED, UNREACHABLE, App
from layercake.client.target import DEFAULT_SOCKET, Target
from layercake.kraken.errors import (
    DeclarationError,
    GraphTooLarge,
    InputError,
    LayercakeError,
    Refused,
    Unreachable,
)

INTERRUPTED = 130
_CODES: tuple[tuple[type[LayercakeError], int], ...] = (
    (InputError, BAD_INPUT),
    (DeclarationError, BAD_INPUT),
    (GraphTooLarge, BAD_INPUT),
    (Unreachable, UNREACHABLE),
    (Refused, REFUSED),
)

COMMANDS = {
    "init": "layercake.cli.head",
    "serve": "layercake.cli.head",
    "status": "layercake.features.status.commands",
    "plan": "layercake.features.inventory.plan_commands",
    "apply": "layercake.features.inventory.plan_commands",
    "inventory": "layercake.features.history.commands",
    "networks": "layercake.features.inventory.commands",
    "dns": "layercake.features.inventory.commands",
    "node": "layercake.features.nodes.commands",
    "image": "layercake.features.images.commands",
    "roll": "layercake.features.rolls.commands",
    "power": "layercake.features.power.commands",
    "calls": "layercake.features.calls.commands",
    "call": "layercake.features.calls.commands",
    "events": "layercake.features.events.commands",
    "explain": "layercake.features.guard.commands",
    "graph": "layercake.cli.graph",
    "new": "layercake.cli.new",
    "freeze": "layercake.features.guard.commands",
    "thaw": "layercake.features.guard.commands",
    "outage": "layercake.features.guard.commands",
    "machine": "layercake.features.machines.commands",
    "boot": "layercake.cli.boot_build",
    "profile": "layercake.cli.boot_build",
    "boot-media": "layercake.cli.boot_build",
    "authority": "layercake.features.authority.commands",
    "heads": "layercake.cli.heads",
    "witness": "layercake.cli.heads",
    "check": "layercake.cli.check",
    "backup": "layercake.cli.head",
    "restore": "layercake.cli.head",
    "token": "layercake.features.access.commands",
    "audit": "layercake.features.access.commands",
    "sim": "layercake.cli.sim",
    "watch": "layercake.cli.watch",
    "log-level": "layercake.features.logs.commands",
    "report": "layercake.features.status.commands",
    "console": "layercake.features.consoles.commands",
    "capture": "layercake.features.captures.commands",
    "sensors": "layercake.features.power.commands",
    "dashboard": "layercake.cli.dashboard",
    "tpm": "layercake.features.tpm.commands",
    "files": "layercake.features.files.commands",
    "ssh-known-hosts": "layercake.features.files.commands",
    "shell-groups": "layercake.cli.shell_groups",
    "docs": "layercake.cli.docs",
}
"""Each command and the module that it stands in, which is imported when the command is used and not
before."""

EPILOG = """\
\b
Environment:
  LAYERCAKE_SOCKET      the head's socket, for its administrator on the same machine
  LAYERCAKE_URL         the head over the network, https://HOST:8443; of several heads all, with
                        commas between them
  LAYERCAKE_TOKEN_FILE  a file with the token for it
  LAYERCAKE_CA          the head's CA certificate, to check it by
  LAYERCAKE_CERT        a certificate with its key, for a token that needs one
  LAYERCAKE_DATA        the head's data directory, for init, serve, check, backup and restore;
                        /var/lib/layercake if not set
  LAYERCAKE_PASSPHRASE  what backups are encrypted with, if no --passphrase-file is given

\b
Tokens: `layercake init` writes the administrator's to admin.token in the data directory, and the
CA to pki/ca.pem; `layercake token create NAME --role ROLE` makes others.
The REST API describes itself at /v1/openapi.json.

\b
Documentation: `layercake docs`, and https://HEAD:8443/docs/ in a browser.
"""


class _Commands(click.Group):
    """The commands by COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(
            importlib.import_module(COMMANDS[cmd_name]), cmd_name.replace("-", "_")
        )
        return command


@click.group(
    cls=_Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--socket",
    default=DEFAULT_SOCKET,
    show_default=True,
    envvar="LAYERCAKE_SOCKET",
    show_envvar=True,
    help="The head's socket.",
)
@click.option(
    "--url",
    default="",
    envvar="LAYERCAKE_URL",
    show_envvar=True,
    help="The head over the network: https://HOST:8443; of several heads all, with commas.",
)
@click.option(
    "--token-file",
    default="",
    envvar="LAYERCAKE_TOKEN_FILE",
    show_envvar=True,
    help="A file with the token for --url.",
)
@click.option(
    "--ca",
    default="",
    envvar="LAYERCAKE_CA",
    show_envvar=True,
    help="The head's CA certificate, for --url.",
)
@click.option(
    "--cert",
    default="",
    envvar="LAYERCAKE_CERT",
    show_envvar=True,
    help="A certificate with its key, for --url.",
)
@click.version_option(__version__, prog_name="layercake")
@click.pass_obj
def cli(app: App, socket: str, url: str, token_file: str, ca: str, cert: str) -> None:
    """Takes a rack of bare metal from power-off to running system images, and keeps it there.

    RANGE names nodes: n0, n[0-3,7], rack[1-2]n[01-16], @group; @all is every node.
    """
    app.target = Target(socket, url, token_file, ca, cert)


cli.params.append(JSON)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code. Errors that a person can make or meet are printed,
    without traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    app = App(_unknown_key)
    app.out.json = "--json" in words[: words.index("--") if "--" in words else None]
    try:
        result = cli.main(words, prog_name="layercake", standalone_mode=False, obj=app)
        sys.stdout.flush()
        return result if isinstance(result, int) else OK
    except click.UsageError as error:
        return _usage(app, error)
    except (click.Abort, KeyboardInterrupt):
        app.out.note("interrupted; what was asked of the head goes on")
        return INTERRUPTED
    except LayercakeError as error:
        return _fail(app, error)
    except BrokenPipeError:
        # The reader of our pipe has gone; nothing is left to say, and Python must not try at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _unknown_key(key: str) -> str | None:
    from layercake.head.modules import unknown_key  # only who mistypes one waits for the modules

    return unknown_key(key)


def _usage(app: App, error: click.UsageError) -> int:
    word = getattr(error, "command_name", "")  # of click's NoSuchCommand alone
    hint = _meant(word, error.ctx.command_path if error.ctx else "")
    if app.out.json:
        usage = error.ctx.get_usage() if error.ctx else ""
        app.out.document({"error": error.format_message(), "hint": hint or usage})
    else:
        error.show()
        if hint:
            app.out.note(f"hint: {hint}")
    return BAD_INPUT


def _meant(word: str, group: str) -> str:
    """Which commands somebody may have meant who typed a word behind `group` that is none."""
    if not word:
        return ""
    from layercake.cli.similar import similar

    return " or ".join(f"`{command}`" for command in similar(cli, word, group))


def _fail(app: App, error: LayercakeError) -> int:
    from layercake.inventory.problems import InventoryErrors

    problems = error.problems if isinstance(error, InventoryErrors) else ()
    if app.out.json:
        document: dict[str, object] = {"error": error.message, "hint": error.hint}
        if problems:
            document["problems"] = [asdict(p) for p in problems]
        app.out.document(document)
    else:
        app.out.note(error.message)
        for problem in problems:
            app.out.note(f"  {problem}")
        if error.hint:
            app.out.note(f"hint: {error.hint}")
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


if __name__ == "__main__":
    sys.exit(main())
