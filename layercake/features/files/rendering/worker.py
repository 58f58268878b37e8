"""Renders templates in a process of its own: one that runs away takes nobody with it.

    python -m layercake.features.files.rendering.worker

Frames of four bytes of length and MessagePack, both ways: a Question, an Answer.
"""

from __future__ import annotations

import struct
import sys
from typing import Any, BinaryIO

import msgspec

from layercake.features.files.rendering.template import NotRendered, Templates

_LENGTH = struct.Struct("!I")
MAX_FRAME = 64 << 20


class Job(msgspec.Struct, frozen=True):
    """A template to be rendered: what stands for it, and its text if it was not told before."""

    key: str
    text: str = ""


class Question(msgspec.Struct, frozen=True):
    """Jobs for one node. `site` is told when it is another than before."""

    jobs: list[Job]
    node: dict[str, Any] = {}
    site: dict[str, Any] | None = None


class Answer(msgspec.Struct, frozen=True):
    """For each job the text, or None, with the line and what is wrong."""

    texts: list[str | None]
    errors: list[str]


def frame(message: msgspec.Struct) -> bytes:
    """A message as it is sent."""
    data = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(data)) + data


class Worker:
    """What is remembered between questions."""

    def __init__(self) -> None:
        self._templates = Templates()
        self._texts: dict[str, str] = {}
        self._site: dict[str, Any] = {}

    def answer(self, question: Question) -> Answer:
        """Renders."""
        if question.site is not None:
            self._site = question.site
        facts = {**self._site, "node": question.node}
        texts: list[str | None] = []
        errors: list[str] = []
        for job in question.jobs:
            if job.text:
                self._texts[job.key] = job.text
            try:
                texts.append(self._templates.render(job.key, self._texts.get(job.key, ""), facts))
                errors.append("")
            except NotRendered as error:
                texts.append(None)
                errors.append(str(error))
        return Answer(texts, errors)


def read_frame(stream: BinaryIO) -> bytes:
    """The next message, b"" at the end."""
    head = stream.read(_LENGTH.size)
    return stream.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""


def main() -> None:
    """Answers until nobody asks any more."""
    worker = Worker()
    while data := read_frame(sys.stdin.buffer):
        sys.stdout.buffer.write(frame(worker.answer(msgspec.msgpack.decode(data, type=Question))))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
