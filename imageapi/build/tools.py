"""Runs the tools that build images (buildah, umoci, mksquashfs): their progress as it comes, their
last words on failure."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from imageapi.build.limits import Limits, Watch
from layercake.kraken.errors import OperationFailed

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LAST_LINES = 40
_LONGEST_LINE = 1 << 16
_LINE = re.compile(rb"[\r\n]+")
_NOISE = re.compile(r"^(Usage:|See '|time=\S+ level=(info|debug))")

Line = Callable[[str], None]


def run(
    command: Sequence[str],
    what: str,
    package: str,
    env: dict[str, str] | None = None,
    line: Line = lambda text: None,
    limits: Limits | None = None,
) -> None:
    """Runs a tool without a terminal or input. `line` gets each line of what it says, a progress
    bar's too, as it comes; of a long line what comes first.

    The tool and all that it started end when this is left by an exception (Ctrl-C). Raises
    OperationFailed with its last words, with the limit that it has reached, or with which Debian
    package has it.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise OperationFailed(
            f"cannot {what}: {command[0]} is not installed", hint=f"apt-get install {package}"
        ) from None
    assert process.stdout is not None  # noqa: S101 (for the type checker)
    output: deque[str] = deque(maxlen=_LAST_LINES)
    watch = Watch(process, limits)
    try:
        with watch:
            for text in _lines(process.stdout):
                output.append(text)
                line(text)
            status = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    finally:
        process.stdout.close()
    if watch.why:
        raise OperationFailed(f"cannot {what}: {watch.why}, and was ended")
    if status:
        message = last_words(output, status)
        others = (
            t
            for t in dict.fromkeys(output)
            if not _NOISE.match(t) and message not in t and t not in message
        )
        before = list(others)[-3:]
        raise OperationFailed(
            f"cannot {what}: {message}",
            hint=f"it said before: {' | '.join(before)}"[:500] if before else "",
        )


def _lines(stream: IO[bytes]) -> Iterator[str]:
    """The lines of a stream as they come, ended by a line feed or a carriage return; empty ones are
    left out."""
    rest = b""
    descriptor = stream.fileno()
    while chunk := os.read(descriptor, 65536):
        *whole, rest = _LINE.split(rest + chunk)
        rest = rest[:_LONGEST_LINE]  # what ends no line is not kept without end
        yield from (text for part in whole if (text := part.decode("utf-8", "replace").strip()))
    if text := rest.decode("utf-8", "replace").strip():
        yield text


def last_words(said: Sequence[str], status: int) -> str:
    """The line in which a tool most likely says why it failed: the last that speaks of an error,
    else the last."""
    lines = [text for text in said if not _NOISE.match(text)]
    wrong = [
        text
        for text in lines
        if re.search(r"error|fatal|cannot|fail|denied|not found|no such", text, re.IGNORECASE)
    ]
    if not lines:
        return f"it ended with status {status} and said nothing"
    line = (wrong or lines)[-1]
    message = re.search(r'msg="((?:[^"\\]|\\.)*)"', line)  # logrus: time=... level=fatal msg="..."
    return (message[1].replace('\\"', '"') if message else line)[:500]
