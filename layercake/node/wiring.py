"""The node's wiring: the agent of minos, the images of imageapi, and the engine, put together in one place."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import imageapi.mutations
from imageapi.node.attach.fetch import Body, FileBody
from imageapi.node.container.runtime import Runtime
from imageapi.node.imageset.imageset import ImageSet
from layercake.kraken.events import EventKind, Severity
from layercake.node.declarations import HEAD_MUTATIONS
from minos.agent.busy import is_busy
from minos.agent.early import Early
from minos.agent.http import Download
from minos.agent.loop import Agent
from minos.agent.secrets import Secrets
from minos.agent.state import Session
from minos.agent.worker import Handler

if TYPE_CHECKING:
    from layercake.node.serving import Serving

MUTATIONS = (*HEAD_MUTATIONS, *imageapi.mutations.MUTATIONS)


class Context:
    """What a mutation's handler works on (imageapi.mutations.NodeContext)."""

    def __init__(self, images: ImageSet, run: Path, interrupted: Callable[[], bool], tell_all: Callable[[], None]) -> None:
        self.images = images
        self.interrupted = interrupted
        self.tell_all = tell_all
        self._run = run

    def busy(self) -> bool:
        """Whether `layercake-busy busy` was said."""
        return is_busy(self._run)


def open_url(url: str, offset: int) -> Body:
    """Opens an image's address (imageapi.node.attach.fetch.Fetch)."""
    return FileBody(url.removeprefix("file://"), offset) if url.startswith("file:") else Download(url, offset)


def handlers(images: ImageSet, run: Path, tell_all: Callable[[], None]) -> dict[str, Handler]:
    """The node's mutations, ready to be carried out."""

    def bind(handler: Callable[..., Mapping[str, str]]) -> Handler:
        return lambda interrupted: handler(Context(images, run, interrupted, tell_all))

    return {m.name: bind(m.handler) for m in imageapi.mutations.MUTATIONS if m.handler}


def serving(agent: Agent, images: ImageSet, port: int) -> None:
    """Gives the agent its API. What that needs is imported when it is started, when the images run already."""
    kept: list[Serving] = []

    def start(session: Session) -> None:
        from layercake.node.serving import Serving

        if not kept:
            kept.append(Serving(agent.config, images, agent.event, port))
        kept[0].start(session)

    def tell() -> None:
        for found in kept:
            found.tell()

    agent.serve(start, tell)


def make(early: Early, *, say: Callable[[str], None], cgroup: str = "layercake", api_port: int = 0) -> Agent:
    """The agent with everything it needs. Its API listens on `api_port`, 0 for any. Raises LayercakeError."""
    agent = Agent(early, MUTATIONS, say=say, clock=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
                  clock_ns=lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    run = early.config.run

    def event(kind: EventKind, text: str, severity: Severity | None = None, **data: Any) -> None:
        agent.event(kind.name, text, severity or kind.severity, **data)

    images = ImageSet(run, Runtime(run, parent=cgroup), open_url, event, secret=Secrets(early.config), changed=agent.look,
                      busy=lambda: is_busy(run))
    agent.use(images, handlers(images, run, agent.link.drain))
    serving(agent, images, api_port)
    return agent
