"""What a command is: a function of the App and its options that returns an Answer. `command` does
the rest: --json, the conversation with the head, what is printed, and the exit code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from layercake.client.completion import complete
from layercake.client.output import Output
from layercake.client.target import Target
from layercake.kraken.errors import InputError

if TYPE_CHECKING:
    from layercake.client.http import Client

OK, FAILED, BAD_INPUT, UNREACHABLE, REFUSED = range(5)
JSON = click.Option(
    ["--json"], is_flag=True, expose_value=False, help="One JSON document, for machines."
)
"""An option of every command. `main` looks for it, as it is to hold for mistakes of usage too."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command has to say: the document for machines, how a person is shown it (a line,
    several, or a function that prints; "" is nothing), and the exit code. `document` None: the
    command has printed already, also with --json."""

    document: Any = None
    show: str | tuple[str, ...] | Callable[[Output], None] = ""

    def print(self, out: Output) -> None:
        """Shows a person what there is to say. Each text is one line: what else would begin
        another is escaped, as it may have come from a machine."""
        if callable(self.show):
            self.show(out)
            return
        for line in (self.show,) if isinstance(self.show, str) else self.show:
            if line:
                out.line(line)

    code: int = OK


class Declined(Exception):
    """A person was asked and has said no: the command ends, and nothing was changed."""


class App:
    """The state of one run of the program."""

    def __init__(self, unknown_key: Callable[[str], str | None] = lambda key: None) -> None:
        self.target = Target()
        self.out = Output()
        self.unknown_key = unknown_key
        """What may have been meant by a key that no node has (inventory.rules.Keys.unknown); the
        keys of a site's own modules only its head knows."""

    @functools.cached_property
    def head(self) -> Client:
        """The head. Making it asks nothing yet."""
        from layercake.client.http import Client  # `layercake --version` needs none

        return Client(self.target)

    def confirm(self, question: str, yes: bool) -> bool:
        """Asks on standard error unless `yes`. Raises InputError when nobody can answer."""
        if yes:
            return True
        try:
            agreed = click.confirm(question, default=False, err=True)
        except click.Abort:
            click.echo(err=True)
            raise InputError(
                "cannot ask for confirmation: nobody answers", hint="say --yes"
            ) from None
        if not agreed:
            self.out.note("nothing was changed")
        return agreed

    def must_confirm(self, question: str, yes: bool) -> None:
        """Asks as `confirm` does, and ends the command, which has FAILED, if the answer is no."""
        if not self.confirm(question, yes):
            raise Declined


def command(
    group: click.Group | None = None, name: str | None = None, **settings: Any
) -> Callable[[Callable[..., Answer]], click.Command]:
    """Makes a command, of `group` or to be added to one, out of a function. `settings` are
    click's."""

    def decorate(function: Callable[..., Answer]) -> click.Command:
        @functools.wraps(function)
        def run(app: App, /, **options: Any) -> int:
            try:
                answer = function(app, **options)
            except Declined:
                return FAILED
            if answer.document is None:
                pass
            elif app.out.json:
                app.out.document(answer.document)
            else:
                answer.print(app.out)
            return answer.code

        new = click.command(name, click.Command, **settings)(click.pass_obj(run))
        complete(group, new)
        new.params.append(JSON)
        if group is not None:
            group.add_command(new)
        return new

    return decorate


def yes_option(function: F) -> F:
    """--yes: do not ask."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(function)


def reason_option(function: F) -> F:
    """--reason: why, for the history."""
    return click.option("--reason", "-m", default="", help="Why, for `layercake inventory log`.")(
        function
    )


def nodes_argument(function: F) -> F:
    """RANGE: the nodes that are meant."""
    return click.argument("nodes", metavar="RANGE")(function)
