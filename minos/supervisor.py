"""Starts the agent, restarts it when it dies, and reaps everything.

`crun create` leaves a container's init to the nearest subreaper: that is this process, so only it
learns how containers ended. It writes each orphan's status to RUN/exits/PID, where the agent, also
one that was restarted, finds it. A dead agent never stops the images: they are this process's
children, not the agent's.

As PID 1 it ignores requests to stop. On a host (`python -m minos.supervisor --run DIR --
AGENT-ARGUMENTS`), SIGTERM stops the agent and leaves the containers unless --stop-containers is
given.

It holds a socket for the agent: what the agent has bound it to stays so, with nobody else there
first, while one agent follows another.

The agent is forked from this interpreter, without a second start of Python; it imports its own
modules after the fork. One that the head has handed over (programs.py) is another program: it is
executed, beside the one that runs until that ends.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from layercake.base.files import write_atomic
from layercake.kraken.backoff import backoff
from minos import syscalls
from minos.programs import NAME, SOCKET, TURN, Programs

BACKOFF_FIRST = 0.2
BACKOFF_MAX = 30.0
STEADY = 60.0
"""An agent that ran this many seconds was healthy: its next death starts the back-off anew."""
KEEP_EXITS = 512
SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1}
TRIAL_LOOK_S = 0.5


def describe(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit status {os.waitstatus_to_exitcode(status)}"


class Supervisor:
    """One agent and its orphans. `agent` runs in the forked child; None supervises only.
    `arguments` are for an agent that was handed over."""

    def __init__(
        self,
        run: str,
        agent: Callable[[], None] | None,
        *,
        say: Callable[[str], None],
        init: bool = False,
        stop_containers: bool = False,
        arguments: Sequence[str] = (),
    ) -> None:
        self.run_dir = Path(run)
        self.exits = self.run_dir / "exits"
        self.agent = agent
        self.say = say
        self.init = init
        self.stop_containers = stop_containers
        self.agent_pid = 0
        self.programs = Programs(self.run_dir, arguments)
        self._next: tuple[int, int] | None = (
            None  # pid and pipe of the agent that waits for its turn
        )
        self.deaths = 0
        self.started = 0.0
        self.stopping = False
        self._kept: deque[str] = deque()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)

    def run(self) -> None:
        """Runs until told to stop (never, as PID 1), then exits the process."""
        self.exits.mkdir(parents=True, exist_ok=True)
        if not self.init:
            syscalls.set_child_subreaper()
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        start_at = time.monotonic() if self.agent else float("inf")
        while self.agent_pid or not self.stopping:
            if not self.agent_pid and time.monotonic() >= start_at:
                self._start()
                start_at = float("inf")
            self._wait_for_signal(start_at)
            if self._reap() and not self.stopping and not self.agent_pid:
                start_at = time.monotonic() + self._delay()
            if self.programs.until is not None:
                self._look_at_trial()
        if self.stop_containers:
            self._stop_containers()
        (self.run_dir / "agent.pid").unlink(missing_ok=True)
        sys.exit(0)

    def _delay(self) -> float:
        """Seconds until the agent is started again: at once after an orderly end."""
        return backoff(self.deaths, BACKOFF_FIRST, BACKOFF_MAX) if self.deaths else 0.0

    def _wait_for_signal(self, start_at: float) -> None:
        """Waits until a signal comes, or something is due: the start of the agent (`start_at`, on
        the monotonic clock), or a look at one that is on trial."""
        wait = 3600.0
        if not self.agent_pid:
            wait = max(0.0, min(start_at - time.monotonic(), wait))
        if self.programs.until is not None:
            wait = min(wait, TRIAL_LOOK_S)
        received = signal.sigtimedwait(SIGNALS, wait)
        if received is None or received.si_signo == signal.SIGCHLD:
            return
        if received.si_signo == signal.SIGUSR1:
            self._make_ready()
        else:
            self._asked_to_stop()

    def _start(self) -> None:
        """Starts the agent."""
        syscalls.release_memory()
        gc.freeze()  # the agent shares what is there now: to look for garbage there would copy it
        self._runs(self._fork(self.programs.current, {}))

    def _runs(self, pid: int) -> None:
        self.agent_pid = pid
        self.started = time.monotonic()
        write_atomic(self.run_dir / "agent.pid", f"{pid}\n")

    def _make_ready(self) -> None:
        """The agent says that another one shall take over: that one is started beside it, and
        waits."""
        if self.stopping or not self.programs.order(time.monotonic()):
            return
        turn, go = os.pipe()
        os.set_inheritable(turn, True)
        self._next = self._fork(self.programs.candidate, {TURN: str(turn)}), go
        os.close(turn)

    def _hand_over(self) -> bool:
        """The agent has ended. Whether another one takes over."""
        if self._next is None:
            return False
        pid, go = self._next
        self._next = None
        os.write(go, b"x")
        os.close(go)
        self._runs(pid)
        self.say(f"supervisor: {self.programs.takes_over(self.started)}")
        return True

    def _look_at_trial(self) -> None:
        """Ends an agent whose trial is over; its end is then reaped like any other."""
        if self.programs.proven():
            self.say(f"supervisor: agent {self.programs.current} is good")
            self._make_ready()  # what it was told of meanwhile
        elif (
            self.programs.until is not None
            and time.monotonic() >= self.programs.until
            and not self.programs.is_ready()
        ):
            pid = self._next[0] if self._next else self.agent_pid
            if pid:
                os.kill(pid, signal.SIGKILL)

    def _fork(self, name: str, more: Mapping[str, str]) -> int:
        """Starts an agent in a child."""
        sys.stdout.flush()
        command = self.programs.command(name, sys.executable)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
                os.environ.update({NAME: name, SOCKET: str(self._socket.fileno()), **more})
                if command:
                    self._socket.set_inheritable(True)
                    os.execv(command[0], command)  # noqa: S606 (without a shell, on purpose)
                elif self.agent:
                    self.agent()
                status = 0
            except SystemExit as stop:
                status = stop.code if isinstance(stop.code, int) else 1
            except BaseException:  # noqa: BLE001 (the last place that can show it)
                import traceback

                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(status)
        return child

    def _asked_to_stop(self) -> None:
        if self.init:
            self.say("supervisor: PID 1 does not stop; use poweroff -f or reboot -f")
            return
        self.stopping = True
        if self._next is not None:
            os.kill(self._next[0], signal.SIGKILL)
        if self.agent_pid:
            os.kill(self.agent_pid, signal.SIGTERM)

    def _reap(self) -> bool:
        """Collects all that ended; returns whether the agent did."""
        agent_ended = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return agent_ended
            if pid == 0:
                return agent_ended
            if pid == self.agent_pid:
                self._agent_died(status)
                agent_ended = True
            elif self._next is not None and pid == self._next[0]:
                os.close(self._next[1])
                self._next = None
                self.say(
                    "supervisor: "
                    f"{self.programs.refuse(f'it ended before its turn: {describe(status)}')}"
                )
            else:
                self._record(pid, status)

    def _agent_died(self, status: int) -> None:
        lasted = time.monotonic() - self.started
        self.deaths = 1 if lasted >= STEADY else self.deaths + 1
        self.agent_pid = 0
        if self.stopping:
            return
        if self._hand_over():
            self.deaths = 0
        elif other := self.programs.ended(
            f"it ended after {lasted:.1f} s: {describe(status)}", self.deaths
        ):
            self.deaths = 0
            self.say(f"supervisor: {other}")
        else:
            self.say(
                f"supervisor: the agent ended after {lasted:.1f} s ({describe(status)}), "
                f"again in {backoff(self.deaths, BACKOFF_FIRST, BACKOFF_MAX):.1f} s"
            )

    def _record(self, pid: int, status: int) -> None:
        """Keeps an orphan's wait status for the agent; the oldest are dropped, most were never
        containers."""
        name = str(pid)
        if name in self._kept:
            self._kept.remove(name)
        self._kept.append(name)
        try:
            write_atomic(self.exits / name, f"{status}\n")
            while len(self._kept) > KEEP_EXITS:
                (self.exits / self._kept.popleft()).unlink(missing_ok=True)
        except OSError as error:
            self.say(f"supervisor: cannot record how process {pid} ended: {error}")

    def _stop_containers(self) -> None:
        """Ends every orphan that is left, the containers' inits among them, and collects them."""
        import json

        pids = []
        for file in (self.run_dir / "images").glob("*.json"):
            pid = json.loads(file.read_text()).get("pid", 0)
            if pid > 1:
                pids.append(pid)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                self.say(f"supervisor: container process {pid} was gone already")


def main(arguments: list[str]) -> None:
    """`[--run DIR] [--stop-containers] -- AGENT-ARGUMENTS`."""
    own, _, rest = (
        "\0".join(arguments).partition("\0--\0")
        if "--" in arguments
        else ("\0".join(arguments), "", "")
    )
    own_arguments = own.split("\0")
    if "--run" not in own_arguments:
        sys.exit(
            "usage: python -m minos.supervisor --run DIR [--stop-containers] -- AGENT-ARGUMENTS"
        )
    run = own_arguments[own_arguments.index("--run") + 1]
    sys.path.insert(0, str(Path(__file__).with_name("lean")))  # as in minOS: the agent is smaller

    def agent() -> None:
        from layercake.node.main import main as agent_main

        agent_main(rest.split("\0"))

    def print_line(text: str) -> None:
        print(f"minos: {text}", flush=True)  # noqa: T201 (the console is our output)

    Supervisor(
        run,
        agent,
        say=print_line,
        stop_containers="--stop-containers" in own_arguments,
        arguments=rest.split("\0"),
    ).run()


if __name__ == "__main__":
    main(sys.argv[1:])
