"""`layercake node exec`, `node logs` and `node copy`: commands, logs and files of one node or many.

Of one that is named, output comes as it is written. Of a range, it comes when a node is done, with
the nodes that say the same together.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from layercake.client.command import FAILED, OK, Answer, App, command
from layercake.client.folding import Folding, counted
from layercake.client.http import lines_of, path_segment
from layercake.inventory.ranges import fold, names_of
from layercake.kraken.errors import InputError, OperationFailed, Unreachable

MAX_COPY = 8 << 20
MAX_DOCUMENT = 16 << 20
"""Bytes of a command's output in the document of --json."""
SPARE_S = 60.0
"""Seconds of silence beyond a node's time after which the head is no longer waited for."""
INTERRUPTED = 130
_ONE = re.compile(r"[A-Za-z0-9._-]+")
NodeAnswer = Mapping[str, Any]
F = TypeVar("F", bound=Callable[..., Any])


def _fan_out_options(function: F) -> F:
    """The options of what is done on many nodes at once."""
    for option in (
        click.option("--no-fold", is_flag=True, help="A line for each node's, as they come."),
        click.option(
            "--fan-out",
            type=click.IntRange(1, 10_000),
            help="At most so many nodes at the same time, each until it is done; without, the "
            "setting fan_out.at_once, and slow ones hold up no others.",
        ),
        click.option(
            "--total-timeout",
            type=click.FloatRange(0.1, 86_400),
            help="Seconds for all nodes together; without, as long as it takes.",
        ),
    ):
        function = option(function)
    return function


_timeout = click.option(
    "--timeout",
    type=click.FloatRange(0.1, 3600),
    default=60.0,
    show_default=True,
    help="Seconds that each node has; then it is killed there.",
)


def _in_image(what: str) -> Callable[[F], F]:
    return click.option(
        "--in-image", "--container", "container", metavar="NAME", default="", help=what
    )


@command()
@click.argument("nodes", metavar="RANGE")
@_in_image("The image whose log it is; the first one if not given.")
@click.option("--lines", type=click.IntRange(1, 10000), default=200, show_default=True)
@click.option(
    "--follow", "-f", "following", is_flag=True, help="Go on as the log grows, until interrupted."
)
@click.option("--no-fold", is_flag=True, help="A line for each node's, as they come.")
def logs(
    app: App, nodes: str, container: str, lines: int, following: bool, no_fold: bool
) -> Answer:
    """Show the log of a container on a node, or on all of RANGE, with those that are alike
    together."""
    if _ONE.fullmatch(nodes) and not no_fold:
        return _log_of_one(app, nodes, container, lines, following)
    if following:
        raise InputError(
            f"cannot follow the logs of {nodes}: only that of one node", hint="name a node"
        )
    answers = _Answers(app, no_fold)
    stream = app.head.stream(
        "GET", "/v1/logs", timeout=SPARE_S, range=nodes, container=container, lines=lines
    )
    return answers.show(stream, lambda answer: "")


def _log_of_one(app: App, name: str, container: str, lines: int, following: bool) -> Answer:
    path = f"/v1/nodes/{path_segment(name)}"
    if following:
        for data in app.head.stream("GET", f"{path}/follow", container=container, lines=lines):
            app.out.piece(data)
        return Answer()
    answer = app.head.get(f"{path}/logs", container=container, lines=lines)
    return Answer(answer, lambda out: out.raw(str(answer["text"])))


@command(name="exec")
@click.argument("nodes", metavar="RANGE")
@click.argument("command", nargs=-1, required=True)
@_in_image("The image to run it in; without, it runs in minOS itself.")
@_timeout
@_fan_out_options
def execute(
    app: App,
    nodes: str,
    command: tuple[str, ...],
    container: str,
    timeout: float,
    total_timeout: float | None,
    fan_out: int | None,
    no_fold: bool,
) -> Answer:
    """Run COMMAND on the nodes of RANGE (write -- before it). The head's history says who ran what.

    Of one node that is named, output comes as it is written, and the exit code is the command's. Of
    a range, nodes with the same output are shown together; the exit code is 0 if it ended with 0 on
    all of them, and 1 otherwise. With --json, which stands before the --, there is one document
    for a node that is named, and a line for each node of a range.
    """
    body = {"command": list(command), "container": container, "timeout_s": timeout}
    if _ONE.fullmatch(nodes) and not (no_fold or fan_out or total_timeout):
        return _execute_on_one(app, nodes, body)
    body |= {"range": nodes, "total_s": total_timeout or 0.0, "fan_out": fan_out or 0}
    answers = _Answers(app, no_fold, timeout)
    stream = app.head.stream("POST", "/v1/nodes/exec", timeout=timeout + SPARE_S, body=body)
    return answers.show(stream, _status)


def _status(answer: NodeAnswer) -> str:
    """How a command ended on a node, "" if that was well."""
    status = answer.get("exit")
    if status is None or status == 0:
        return ""
    return f"exit status {status}" if status > 0 else f"killed by signal {-status}"


def _execute_on_one(app: App, name: str, body: Mapping[str, Any]) -> Answer:
    output = {"out": b"", "err": b""}
    stream = app.head.stream("POST", f"/v1/nodes/{path_segment(name)}/exec", body=body)
    try:
        code = _shown_as_it_comes(app, stream, output)
    except KeyboardInterrupt:
        app.out.note(f"interrupted: the command is stopped on {name}")
        return Answer(code=INTERRUPTED)
    if code is None:
        raise Unreachable(f"cannot say how the command on {name} ended: the answer was cut off")
    texts = {where: data.decode("utf-8", "replace") for where, data in output.items()}
    document = {"node": name, "container": body["container"], "exit": code, **texts}
    return Answer(document, code=code)


def _shown_as_it_comes(app: App, stream: Iterator[bytes], output: dict[str, bytes]) -> int | None:
    """The exit code of a command, None if the answer was cut off. What it writes is shown, or with
    --json gathered."""
    code = None
    for line in lines_of(stream):
        message = json.loads(line)
        if "error" in message:
            raise OperationFailed(
                f"cannot finish the command: {message['error']}", hint="give it more with --timeout"
            )
        if "exit" in message:
            code = int(message["exit"]) if int(message["exit"]) >= 0 else 128 - int(message["exit"])
        for where in output.keys() & message.keys():
            data = base64.b64decode(message[where])
            if not app.out.json:
                app.out.piece(data, error=where == "err")
                continue
            output[where] += data
            if len(output[where]) > MAX_DOCUMENT:
                raise OperationFailed(
                    f"cannot show it: the command wrote more than {MAX_DOCUMENT >> 20} MiB",
                    hint="without --json it comes as it is written",
                )
    return code


@command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("target", metavar="RANGE:PATH")
@_in_image("The image to write it into; without, into minOS itself.")
@click.option("--mode", default="", metavar="OCTAL", help="Its mode; that of FILE if not given.")
@click.option("--owner", default="root", show_default=True, help="The user it is to belong to.")
@click.option("--group", default="root", show_default=True, help="The group it is to belong to.")
@_timeout
@_fan_out_options
def copy(
    app: App,
    file: Path,
    target: str,
    container: str,
    mode: str,
    owner: str,
    group: str,
    timeout: float,
    total_timeout: float | None,
    fan_out: int | None,
    no_fold: bool,
) -> Answer:
    """Copy FILE, of 8 MiB at most, to PATH on the nodes of RANGE, in one step on each.

    It is gone with the node's next boot, or with the image's next start: what shall last belongs
    into `files` of the inventory. The exit code is 0 if all nodes have it, and 1 otherwise.
    """
    nodes, path = _target(target, file.name)
    content, its_mode = _read(file)
    body = {
        "range": nodes,
        "path": path,
        "content": {"base64": base64.b64encode(content).decode()},
        "mode": _octal(mode) if mode else its_mode,
        "owner": owner,
        "group": group,
        "container": container,
        "timeout_s": timeout,
        "total_s": total_timeout or 0.0,
        "fan_out": fan_out or 0,
    }
    answers = _Answers(app, no_fold, timeout)
    stream = app.head.stream("POST", "/v1/nodes/copy", timeout=timeout + SPARE_S, body=body)
    return answers.show(
        stream, lambda answer: "written" if answer.get("changed") else "was the same already"
    )


def _target(text: str, name: str) -> tuple[str, str]:
    """The range and the path of RANGE:PATH; a path that ends with / gets the file's name. Raises
    InputError."""
    nodes, _, path = text.partition(":")
    if not nodes or not path.startswith("/"):
        raise InputError(
            f"cannot copy to {text[:80]}: RANGE:PATH is expected, with an absolute path",
            hint="such as n[0-3]:/tmp/ for all of n0 to n3",
        )
    return nodes, path + name if path.endswith("/") else path


def _read(file: Path) -> tuple[bytes, int]:
    """A file and its mode. Raises InputError."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_COPY + 1)
            mode = file.stat().st_mode & 0o777
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from None
    if len(content) > MAX_COPY:
        raise InputError(
            f"cannot copy {file}: it is larger than {MAX_COPY >> 20} MiB",
            hint="large files belong into an image, or on a file server",
        )
    return content, mode


def _octal(text: str) -> int:
    if not re.fullmatch(r"[0-7]{3,5}", text) or int(text, 8) > 0o7777:
        raise InputError(
            f"cannot use --mode {text[:20]}: an octal number is expected", hint="such as 0644"
        )
    return int(text, 8)


class _Answers:
    """Shows the answers of many nodes, and sums them up. `timeout` is a node's, in seconds."""

    def __init__(self, app: App, no_fold: bool, timeout: float = SPARE_S) -> None:
        self._app = app
        self._lines = no_fold
        self._timeout = timeout
        self._asked: list[str] = []
        self._answered: dict[str, str] = {}

    def show(self, stream: Iterator[bytes], how: Callable[[NodeAnswer], str]) -> Answer:
        """Shows them. `how` says how it ended on a node that did it, and "exit" of an answer
        whether that is well."""
        folding = Folding(self._app.out)
        try:
            with self._app.out.progress() as progress:
                for line in lines_of(stream):
                    answer = json.loads(line)
                    if "count" in answer:
                        self._asked = names_of(answer["range"])
                        continue
                    self._answered[answer["node"]] = _outcome(answer)
                    self._show_one(answer, how(answer), folding)
                    if not self._lines:
                        progress((), self._picture)
        except KeyboardInterrupt:
            folding.show()
            self._interrupted()
            return Answer(code=INTERRUPTED)
        folding.show()
        return self._sum()

    def _picture(self) -> list[str]:
        return [f"{len(self._answered)} of {len(self._asked)} nodes have answered"]

    def _show_one(self, answer: NodeAnswer, how: str, folding: Folding) -> None:
        out = self._app.out
        node = str(answer["node"])
        title = nameless(str(answer["error"]), node) if answer.get("error") else how
        if out.json:
            out.json_line(_document(answer))
        elif self._lines:
            for name in ("out", "err"):
                out.piece(_prefixed(node, _data(answer, name)), error=name == "err")
            if title or cut(answer):
                out.note(f"{node}: {title}{cut(answer)}")
        else:
            text = b"".join(_data(answer, name) for name in ("out", "err"))
            folding.add(node, title + cut(answer), text.decode("utf-8", "replace"))

    def _sum(self) -> Answer:
        groups: dict[str, list[str]] = {"done": []}
        for node, outcome in self._answered.items():
            groups.setdefault(outcome, []).append(node)
        if missing := [node for node in self._asked if node not in self._answered]:
            groups["unknown, as the head's answer was cut off"] = missing
        self._app.out.note(counted(list(groups.items()), _nodes))
        return Answer(code=FAILED if len(groups) > 1 else OK)

    def _interrupted(self) -> None:
        left = [node for node in self._asked if node not in self._answered]
        where = f"on {fold(left)}" if left else "where it has begun"
        self._app.out.note(
            f"interrupted: the head has it stopped {where}; on a node that does not hear of that, "
            f"it goes on for {self._timeout:g} s at most"
        )


def nameless(text: str, node: str) -> str:
    """A text about a node that is the same for others."""
    return re.sub(rf"(?<![\w.-]){re.escape(node)}(?![\w-])", "the node", text)


def cut(answer: NodeAnswer) -> str:
    """What is said of output that was dropped."""
    return f" ({answer['cut']} bytes more were dropped)" if answer.get("cut") else ""


def _outcome(answer: NodeAnswer) -> str:
    """In which way it ended, in a word or two for the sum."""
    if answer.get("error"):
        return "failed" if answer.get("begun", True) else "not reached"
    status = answer.get("exit", 0)
    return "done" if status == 0 else f"with {_status(answer)}"


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _data(answer: NodeAnswer, name: str) -> bytes:
    if name == "out" and answer.get("text"):
        return str(answer["text"]).encode() + b"\n"
    return base64.b64decode(answer.get(name, ""))


def _prefixed(node: str, data: bytes) -> bytes:
    return b"".join(node.encode() + b": " + line + b"\n" for line in data.splitlines())


def _document(answer: NodeAnswer) -> dict[str, Any]:
    """An answer for machines: output as text."""
    texts = {
        name: _data(answer, name).decode("utf-8", "replace")
        for name in ("out", "err")
        if name in answer or "exit" in answer
    }
    defaults = {"begun": True, "error": "", "hint": "", "cut": 0, "exit": None}
    return {"node": answer["node"], **defaults, **answer, **texts}
