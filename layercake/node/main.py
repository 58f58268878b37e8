"""The agent's start: in minOS, init forks this (`main_on_node`); on a host, for benchmarks and
tests:

    python -m layercake.node.main --head URL --ca FILE --node UUID --token-file F --run DIR \\
      --sync HOST:PORT

Most of a start is importing, and joining is mostly waiting for the head: so this file imports just
what joining needs, and the rest (layercake/node/wiring.py) comes in while the join is under way. On
an emulated machine that is a second.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from layercake import __version__
from layercake.kraken.errors import InputError, LayercakeError
from minos.agent.core import AgentCore
from minos.agent.state import Config
from minos.identity import Identity, parse_identity
from minos.programs import NAME, OWN, TURN, keep_from_children, wait_for_turn

AUTHORITY = Path("/etc/layercake/ca.pem")
API_PORT = 8444
"""Where a node's own API listens; agents on a host take any port, because several may run there."""


def print_line(text: str) -> None:
    """Prints a line on the console, with the seconds since the kernel started."""
    # The console is our output.
    print(f"minos: {time.clock_gettime(time.CLOCK_BOOTTIME):.2f} {text}", flush=True)  # noqa: T201


def jitter() -> float:
    """A number in [0, 1). Not the random module: it is slow to import, and this is all that is
    needed of it."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


def start(
    config: Config, cgroup: str = "layercake", api_port: int = 0, *, owner: bool = False
) -> None:
    """Joins, and runs the agent. `owner`: the machine is ours, it runs minOS. Returns after
    SIGTERM. Raises LayercakeError."""
    config.run.mkdir(parents=True, exist_ok=True)
    if TURN in os.environ:  # another agent runs still: all is imported, and then it is waited for
        importlib.import_module("layercake.node.wiring")
    keep_from_children()
    wait_for_turn(config.run)
    core = AgentCore(config, say=print_line, wall=time.time, jitter=jitter)
    doing = f"joining {config.head} as {config.name or config.node}"
    if core.session:
        doing = f"session {core.session.number} goes on"
    print_line(f"agent: {doing}")
    core.link.start()
    from layercake.node.wiring import make  # while the link joins; see above

    make(core, cgroup=cgroup, api_port=api_port, owner=owner).run()


def boot_id() -> str:
    """This boot of the kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def configuration(found: Identity, token: str, authority: Path, run: Path) -> Config:
    """The agent's configuration from what a command line says."""
    agent = os.environ.get(NAME, OWN)
    return Config(
        found.node,
        found.name,
        found.mac,
        found.head,
        found.sync,
        token,
        authority,
        run,
        boot_id(),
        __version__,
        found.boot,
        found.boot if agent == OWN else agent,
        found.ntp,
        found.other_heads,
    )


def main_on_node(run: str) -> None:
    """The agent inside minOS: everything is on the kernel command line. Does not return."""
    identity = parse_identity(Path("/proc/cmdline").read_text())
    config = configuration(identity, identity.token, AUTHORITY, Path(run))
    if identity.discover:
        from minos.survey.visit import visit  # here: nodes do not need it

        visit(config, print_line)
        return
    start(config, api_port=API_PORT, owner=True)


USAGE = (
    "usage: python -m layercake.node.main --head URL --ca FILE --node UUID --token-file FILE --run "
    "DIR "
    "[--sync HOST:PORT] [--name NAME] [--mac MAC] [--boot SET] [--cgroup NAME]"
)


def options(arguments: Sequence[str]) -> dict[str, str]:
    """The --name value pairs of a command line. (argparse would cost a node's start for nothing.)
    Raises InputError."""
    known = ("head", "ca", "node", "token-file", "run", "sync", "name", "mac", "boot", "cgroup")
    values = {"name": "", "mac": "", "sync": "", "boot": "", "cgroup": "layercake"}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument[:2] != "--" or argument[2:] not in known or not rest:
            raise InputError(f"cannot use argument {argument!r}", hint=USAGE)
        values[argument[2:]] = rest.pop(0)
    for name in ("head", "ca", "node", "token-file", "run"):
        if name not in values:
            raise InputError(f"cannot start the agent: --{name} is missing", hint=USAGE)
    return values


def main(arguments: Sequence[str]) -> None:
    """The agent on a host, or with `--minos RUN` that of an archive in minOS. Does not return."""
    if arguments[:1] == ["--minos"]:
        main_on_node(arguments[1])
        return
    try:
        values = options(arguments)
        token = Path(values["token-file"]).read_text().strip()
        text = " ".join(
            f"layercake.{k}={values[k]}"
            for k in ("node", "name", "mac", "head", "sync", "boot")
            if values[k]
        )
        config = configuration(parse_identity(text), token, Path(values["ca"]), Path(values["run"]))
        start(config, values["cgroup"])
    except (LayercakeError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
