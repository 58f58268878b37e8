"""The node's wiring: the agent of minos, the images of imageapi, and the engine, put together in one place.

In minOS, init forks this (`main_on_node`); on a host, for benchmarks and tests:

    python -m layercake.node.main --head URL --ca FILE --node UUID --token-file F --run DIR --sync HOST:PORT
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import imageapi.mutations
from imageapi.node.attach import Body, FileBody
from imageapi.node.container import Runtime
from imageapi.node.files import Files
from imageapi.node.images import Images
from imageapi.node.spec import parse_images
from layercake import __version__
from layercake.kraken.errors import InputError, LayercakeError
from layercake.node.declarations import HEAD_MUTATIONS
from minos import cmdline
from minos.agent.http import Download
from minos.agent.loop import Agent
from minos.agent.state import Config
from minos.agent.worker import Handler

MUTATIONS = (*HEAD_MUTATIONS, *imageapi.mutations.MUTATIONS)
AUTHORITY = Path("/etc/layercake/ca.pem")


class AgentImages(Images):
    """The images as the agent knows them (minos.agent.loop.NodeImages): what is wanted comes as the head sent it."""

    def want_documents(self, images: Sequence[Mapping[str, Any]]) -> bool:
        """Sets what is wanted; whether it is something else than before. Raises InputError."""
        return self.want(parse_images(list(images)))


class Context:
    """What a mutation's handler works on (imageapi.mutations.NodeContext)."""

    def __init__(self, images: Images, busy_file: Path, interrupted: Callable[[], bool], tell_all: Callable[[], None]) -> None:
        self.images = images
        self.interrupted = interrupted
        self.tell_all = tell_all
        self._busy_file = busy_file

    def busy(self) -> bool:
        """Whether `layercake-busy busy` was said."""
        return self._busy_file.exists()


def open_url(url: str, offset: int) -> Body:
    """Opens an image's address (imageapi.node.attach.Fetch)."""
    return FileBody(url.removeprefix("file://"), offset) if url.startswith("file:") else Download(url, offset)


def handlers(images: Images, run: Path, tell_all: Callable[[], None]) -> dict[str, Handler]:
    """The node's mutations, ready to be carried out."""

    def bind(handler: Callable[..., Mapping[str, str]]) -> Handler:
        return lambda interrupted: handler(Context(images, run / "busy", interrupted, tell_all))

    return {m.name: bind(m.handler) for m in imageapi.mutations.MUTATIONS if m.handler}


def say(text: str) -> None:
    """A line on the console, with the seconds since the kernel started."""
    print(f"minos: {time.clock_gettime(time.CLOCK_BOOTTIME):.2f} {text}", flush=True)  # noqa: T201 (the console is our output)


def jitter() -> float:
    """A number in [0, 1). Not the random module: it is slow to import, and this is all that is needed of it."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


def make(config: Config, *, cgroup: str = "layercake") -> Agent:
    """An agent with everything it needs. Raises LayercakeError."""
    config.run.mkdir(parents=True, exist_ok=True)
    agent = Agent(config, MUTATIONS, say=say, clock=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
                  clock_ns=lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME), wall=time.time, jitter=jitter)
    images = AgentImages(Files(config.run, Runtime(config.run, parent=cgroup), open_url), agent.event, changed=agent.look)
    agent.use(images, handlers(images, config.run, agent.link.drain))
    return agent


def boot_id() -> str:
    """This boot of the kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def configuration(found: cmdline.Identity, token: str, authority: Path, run: Path) -> Config:
    """The agent's configuration from what a command line says."""
    return Config(found.node, found.name, found.mac, found.head, found.sync, token, authority, run, boot_id(), __version__)


def main_on_node(run: str) -> None:
    """The agent inside minOS: everything is on the kernel command line. Does not return."""
    found = cmdline.parse(Path("/proc/cmdline").read_text())
    make(configuration(found, found.token, AUTHORITY, Path(run))).run()


USAGE = ("usage: python -m layercake.node.main --head URL --ca FILE --node UUID --token-file FILE --run DIR "
         "[--sync HOST:PORT] [--name NAME] [--mac MAC] [--cgroup NAME]")


def options(arguments: Sequence[str]) -> dict[str, str]:
    """The --name value pairs of a command line. (argparse would cost a node's start for nothing.) Raises InputError."""
    known = ("head", "ca", "node", "token-file", "run", "sync", "name", "mac", "cgroup")
    found = {"name": "", "mac": "", "sync": "", "cgroup": "layercake"}
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word[:2] != "--" or word[2:] not in known or not words:
            raise InputError(f"cannot use argument {word!r}", hint=USAGE)
        found[word[2:]] = words.pop(0)
    for name in ("head", "ca", "node", "token-file", "run"):
        if name not in found:
            raise InputError(f"cannot start the agent: --{name} is missing", hint=USAGE)
    return found


def main(arguments: Sequence[str]) -> None:
    """The agent on a host. Does not return."""
    try:
        found = options(arguments)
        token = Path(found["token-file"]).read_text().strip()
        text = " ".join(f"layercake.{k}={found[k]}" for k in ("node", "name", "mac", "head", "sync") if found[k])
        config = configuration(cmdline.parse(text), token, Path(found["ca"]), Path(found["run"]))
        make(config, cgroup=found["cgroup"]).run()
    except (LayercakeError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
