"""The ends of containers, when a descriptor's number is used again at once and a child holds what
it stood for."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Iterator

import pytest

from minos.agent.loop import Ends


class Containers:
    """Programs under the names of containers, and which of them were said to have ended."""

    def __init__(self) -> None:
        self.programs = {name: subprocess.Popen(["sleep", "60"]) for name in ("old", "new")}
        self.handle = os.pidfd_open(self.programs["old"].pid)
        self.found, self.told = {self.handle: "old"}, list[str]()

    def watched(self) -> dict[int, str]:
        return dict(self.found)

    def ended(self, name: str) -> None:
        self.told.append(name)

    def end(self, name: str) -> None:
        self.programs[name].kill()
        self.programs[name].wait()

    def taken_by_new(self) -> None:
        """The number stands for another one from now on."""
        os.close(self.handle)
        handle = os.pidfd_open(self.programs["new"].pid)
        if handle != self.handle:
            os.dup2(handle, self.handle)
            os.close(handle)
        self.found = {self.handle: "new"}


class Loop:
    """What the agent does with them."""

    def __init__(self, containers: Containers) -> None:
        self.containers = containers
        self.selector = selectors.PollSelector()
        self.ends = Ends(containers, self.selector)

    def heard(self) -> list[str]:
        """Who is said to have ended, without waiting."""
        self.containers.told.clear()
        self.ends.watch()
        for key, _ in self.selector.select(0):
            self.ends.hears(key.fd)
        return self.containers.told


@pytest.fixture
def loop() -> Iterator[Loop]:
    found = Loop(Containers())
    yield found
    for name in found.containers.programs:
        found.containers.end(name)
    os.close(found.containers.handle)


def test_a_number_that_is_used_again_stands_for_the_new_one(loop: Loop) -> None:
    containers = loop.containers
    assert loop.heard() == []
    child = containers.programs["child"] = subprocess.Popen(
        ["sleep", "60"], pass_fds=[containers.handle]
    )
    containers.taken_by_new()
    containers.end("old")
    assert loop.heard() == [], "who ended was the old one, and it is not waited for"
    containers.end("new")
    assert child.poll() is None, "it still holds what the number stood for"
    assert loop.heard() == ["new"]


def test_one_that_is_not_watched_any_more_is_not_told_of(loop: Loop) -> None:
    assert loop.heard() == []
    loop.containers.found = {}
    loop.containers.end("old")
    assert loop.heard() == []
    loop.containers.found = {loop.containers.handle: "old"}
    assert loop.heard() == ["old"]
