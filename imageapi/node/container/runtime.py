"""Containers by crun, an OCI runtime: create, start, stop, delete; how a container ended; its log.

A container's init outlives the agent: crun leaves it to the supervisor, which writes its wait
status to RUN/exits/PID. So the agent knows a container by pid and start time, waits for it with a
pidfd, and may come and go.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from imageapi.node import mount, tree
from imageapi.node.container import cgroup, egress, masks, oci
from imageapi.node.container.process import Process, alive, ask_to_end, open_pidfd, start_time, wait
from imageapi.spec.container import ContainerSpec
from imageapi.spec.privileges import CAPABILITIES
from layercake.base.logs.child_output import end_of_output
from layercake.base.scheduling.threads import of_parent
from layercake.base.text import lines_of_proc
from layercake.kraken.errors import OperationFailed

LOG_LIMIT = 4 << 20
JOURNAL_S = 20.0
JOURNAL_END = 1 << 20
JOURNAL_MOST = 64 << 20
"""Seconds that a journal may take, bytes of its end that are handed on, and bytes that are read."""
LOG_KEEP = 1 << 20
STATUS_WAIT = 2.0
KILL_WAIT = 10.0
SYSTEMD_HALT = signal.SIGRTMIN + 3
"""systemd(1): halts the machine; in a container, it ends cleanly."""


def effective_capabilities() -> int:
    """The capabilities that this process has, as a mask."""
    lines = lines_of_proc("/proc/self/status")
    return int(next(line for line in lines if line.startswith("CapEff:")).split()[1], 16)


def device_nodes(paths: Iterable[str]) -> list[oci.Device]:
    """The device nodes at these paths of the node; a directory stands for all in it. Raises
    OperationFailed."""
    nodes = []
    for path in paths:
        try:
            entry = Path(path).stat()
            if stat.S_ISDIR(entry.st_mode):
                nodes += device_nodes(str(inner) for inner in sorted(Path(path).iterdir()))
                continue
        except OSError as error:
            raise OperationFailed(f"cannot give a container {path}: {error.strerror}") from None
        kind = "c" if stat.S_ISCHR(entry.st_mode) else "b" if stat.S_ISBLK(entry.st_mode) else ""
        if not kind:
            raise OperationFailed(f"cannot give a container {path}: it is not a device")
        nodes.append(
            oci.Device(
                path,
                kind,
                os.major(entry.st_rdev),
                os.minor(entry.st_rdev),
                stat.S_IMODE(entry.st_mode),
                entry.st_uid,
                entry.st_gid,
            )
        )
    return nodes


def _run(command: Sequence[str], out: int, limit: float) -> int | None:
    """Runs a program; its exit status, None if it had to be killed after `limit` seconds. The
    kernel tells of its end at once: subprocess, which is given a limit and no pipe, looks again
    after pauses of up to 50 ms."""
    ended = False
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as process:
        try:
            handle = os.pidfd_open(process.pid)
            try:
                ended = wait(handle, limit)
            finally:
                os.close(handle)
        finally:
            if not ended:
                process.kill()
    return process.returncode if ended else None


class Runtime:
    """crun, with its state in RUN/crun. `parent` is the cgroup above all containers; `head_ports`
    says what is closed to them."""

    def __init__(
        self,
        run: Path,
        *,
        parent: str = "layercake",
        console: str = "/dev/console",
        exits: Path | None = None,
        head_ports: Callable[[], egress.HeadPorts] = egress.HeadPorts,
    ) -> None:
        self.run = run
        self.state = run / "crun"
        self.exits = exits or run / "exits"
        self.parent = parent
        self.console = console if Path(console).exists() else ""
        self.head_ports = head_ports

    def bundle(self, instance: str) -> Path:
        """The directory of one container."""
        return self.run / "containers" / instance

    def log(self, instance: str) -> Path:
        """The container's output."""
        return self.bundle(instance) / "log"

    def cgroup(self, instance: str) -> Path:
        """The cgroup of one container."""
        return cgroup.ROOT / self.parent / instance

    def filter(self, instance: str) -> bytes:
        """The seccomp filter of one container as crun keeps it (struct sock_filter[],
        <linux/filter.h>), b"" if it has none."""
        try:
            return (self.state / instance / "seccomp.bpf").read_bytes()
        except FileNotFoundError:
            return b""

    def _call(
        self, *arguments: str, timeout: float = 60, output: int | None = None
    ) -> tuple[int, str]:
        """Runs crun; returns its exit status and its error text."""
        log = self.run / "crun.log"
        log.unlink(missing_ok=True)
        command = ["crun", f"--root={self.state}", f"--log={log}", "--log-format=text", *arguments]
        out = subprocess.DEVNULL if output is None else output
        try:
            status = _run(command, out, timeout)
        except FileNotFoundError:
            raise OperationFailed(
                "cannot run crun: it is not installed", hint="apt-get install crun"
            ) from None
        except OSError as error:
            raise OperationFailed(f"cannot run crun: {error.strerror}") from None
        if status is None:
            raise OperationFailed(
                f"cannot {arguments[0]} a container: crun did not answer for {timeout:.0f} s"
            )
        text = log.read_text(errors="replace").strip() if log.exists() else ""
        return status, text.splitlines()[-1][:400] if text else ""

    def create(
        self,
        instance: str,
        spec: ContainerSpec,
        root: Path,
        binds: Iterable[oci.Bind] = (),
        first: int = 0,
    ) -> Process:
        """Makes the container, all but its program's start. `first` is the node's user that is its
        root in a user namespace, 0 if it has none. Raises OperationFailed with crun's own words."""
        bundle = self.bundle(instance)
        bundle.mkdir(parents=True, exist_ok=True)
        cgroup.delegate(self.parent, spec.resources.controllers)
        effective = effective_capabilities()
        data = oci.config(
            spec,
            root=str(root),
            cgroup=f"/{self.parent}/{instance}",
            hostname=os.uname().nodename,
            effective=effective,
            console=self.console if spec.systemd else "",
            devices=device_nodes(spec.devices),
            binds=binds,
            first=first,
        )
        (bundle / "config.json").write_text(json.dumps(data))
        pid_file = bundle / "pid"
        log = os.open(
            self.log(instance), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640
        )
        try:
            status, text = self._call(
                "create", f"--bundle={bundle}", f"--pid-file={pid_file}", instance, output=log
            )
        finally:
            os.close(log)
        if status:
            raise OperationFailed(
                f"cannot create container {instance}: {text or f'crun exited with {status}'}"
            )
        pid = int(pid_file.read_text())
        (self.exits / str(pid)).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it has none of these cores, or has ended
            of_parent().apply(pid)
        mount.without_devices(pid)
        if first:
            masks.lock(pid, bundle / "masks")
        if not spec.head_api and all(effective >> CAPABILITIES.index(n) & 1 for n in egress.NEEDS):
            self._close_head(instance)
        return Process(pid, start_time(pid))

    def _close_head(self, instance: str) -> None:
        head = self.head_ports()
        if head.ports:
            egress.close_head_ports(self.cgroup(instance), head)

    def start(self, instance: str) -> None:
        """Starts the program of a created container. Raises OperationFailed.

        This is inside the gap of a roll, and on an emulated processor each run of crun costs more
        than a tenth of a second. All that `crun start` does to a container without hooks is to open
        its exec.fifo, remove it and write a byte (libcrun_status_write_exec_fifo in crun's
        src/libcrun/status.c), so that is done here. Should the fifo not be there or have no reader,
        crun itself is asked: another version may work differently.
        """
        if not self._hooks(instance) and self._release(self.state / instance / "exec.fifo"):
            return
        status, text = self._call("start", instance)
        if status:
            raise OperationFailed(
                f"cannot start container {instance}: {text or f'crun exited with {status}'}"
            )

    def _hooks(self, instance: str) -> dict[str, object]:
        """The hooks of a container, as they stand in its configuration."""
        try:
            hooks: dict[str, object] = json.loads(
                (self.bundle(instance) / "config.json").read_text()
            ).get("hooks", {})
        except (FileNotFoundError, ValueError):
            return {}  # its creation was cut short
        return hooks

    @staticmethod
    def _release(fifo: Path) -> bool:
        """Lets a created container go on; False if this is not the way."""
        try:
            handle = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fifo.unlink()
            return os.write(handle, b"0") == 1
        except OSError:
            return False
        finally:
            os.close(handle)

    def stop(self, process: Process, spec: ContainerSpec) -> bool:
        """Asks the init to end, then kills it. Returns whether it ended by itself. Raises
        OperationFailed if it lives on."""
        handle = open_pidfd(process)
        if handle < 0:
            return True
        try:
            if ask_to_end(
                process,
                handle,
                SYSTEMD_HALT if spec.systemd else signal.SIGTERM,
                spec.stop_timeout_s,
            ):
                return True
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            if not wait(handle, KILL_WAIT):
                raise OperationFailed(
                    f"cannot stop process {process.pid}: it did not end {KILL_WAIT:.0f} s after "
                    "SIGKILL",
                    hint="it hangs in the kernel; the node may need a reset",
                )
            return False
        except ProcessLookupError:
            return True
        finally:
            os.close(handle)

    def delete(self, instance: str, process: Process | None = None) -> None:
        """Removes what crun keeps of a container, and its cgroup with all below. A container that
        crun does not know is fine.

        One whose process is known to have ended needs no crun: a directory and a cgroup are all
        that is left of it, unless it has a hook for its end. Processes that outlived its init (it
        shares the node's pid namespace) are killed.
        """
        if (self.state / instance).exists():
            if process is None or alive(process) or "poststop" in self._hooks(instance):
                self._call("delete", "--force", instance)
            tree.remove(self.state / instance)
        cgroup.clear(self.cgroup(instance))

    def exit_status(self, process: Process, timeout: float = STATUS_WAIT) -> int | None:
        """How an init ended, as the supervisor wrote it: 0..255, or 128 + signal; None if nobody
        knows."""
        file = self.exits / str(process.pid)
        deadline = time.monotonic() + timeout
        while not file.exists():
            if time.monotonic() >= deadline or not self.exits.exists():
                return None
            time.sleep(0.01)
        code = os.waitstatus_to_exitcode(int(file.read_text()))
        return code if code >= 0 else 128 - code

    def trim(self, instance: str) -> None:
        """Keeps a log that has grown beyond its limit to its tail. The container writes with
        O_APPEND, so it just goes on."""
        file = self.log(instance)
        if not file.exists() or file.stat().st_size <= LOG_LIMIT:
            return
        with file.open("rb+") as log:
            log.seek(-LOG_KEEP, os.SEEK_END)
            tail = log.read()
            log.truncate(0)
        with file.open("ab") as log:
            log.write(b"[earlier lines were dropped]\n" + tail.partition(b"\n")[2])

    def tail(self, instance: str, lines: int, limit: int = 1 << 18) -> str:
        """The last lines of a container's output."""
        file = self.log(instance)
        if not file.exists():
            return ""
        with file.open("rb") as log:
            log.seek(max(0, file.stat().st_size - limit))
            return b"\n".join(log.read().splitlines()[-lines:]).decode("utf-8", "replace")

    def journal(self, instance: str, lines: int) -> str:
        """The last lines of a systemd container's journal, "" if it has none."""
        command = [
            "crun",
            f"--root={self.state}",
            "exec",
            instance,
            "journalctl",
            "--no-pager",
            "-q",
            "-n",
            str(lines),
        ]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            # The program is the image's own, and may be anything.
            output, too_much = end_of_output(process, JOURNAL_S, JOURNAL_END, JOURNAL_MOST)
            if too_much:
                process.kill()
        good = too_much or process.returncode == 0
        return output.decode("utf-8", "replace") if good else ""
