"""A real slurmctld with its munged, in the head's network namespace and a mount namespace of its
own. No systemd, no accounts."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patience import patience

CONF = """\
ClusterName=test
SlurmctldHost={host}({address})
SlurmctldParameters=enable_configless
SlurmUser=root
AuthType=auth/munge
{auth}
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdSpoolDir=/var/spool/slurmd
Prolog=/usr/lib/layercake/prolog
Epilog=/usr/lib/layercake/epilog
PrologFlags=Alloc
SchedulerParameters=bf_interval=1
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""


class Slurmctld:
    """`nodes` are {name: address}. The munge key is that of the nodes' images. `conf` is for
    clients on this machine."""

    def __init__(
        self, namespace: str, address: str, directory: Path, nodes: Mapping[str, str], key: bytes
    ) -> None:
        self._namespace = namespace
        self._directory = directory
        self.conf = directory / "client.conf"
        for name in ("state", "munge", "etc"):
            (directory / name).mkdir(parents=True)
        (directory / "munge/key").write_bytes(key)
        (directory / "munge/key").chmod(0o400)
        listed = "\n".join(
            f"NodeName={name} NodeAddr={ip} CPUs=1 State=UNKNOWN" for name, ip in nodes.items()
        )
        for path, auth in (
            (directory / "etc/slurm.conf", ""),
            (self.conf, f"AuthInfo=socket={directory}/munge/munge.socket.2"),
        ):
            path.write_text(
                CONF.format(
                    host=socket.gethostname().split(".")[0],
                    address=address,
                    auth=auth,
                    directory=directory,
                    nodes=listed,
                )
            )
        # Slurm would look at the machine's cgroups, and refuses one that has both versions, as this
        # host may.
        (directory / "etc/cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self._process: subprocess.Popen[Any] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        for tool in ("munged", "slurmctld", "scontrol"):
            assert shutil.which(tool), f"{tool} is not installed: see vm-testbed/packages.txt"
        at = self._directory
        script = (
            f"mkdir -p /run/munge && mount --bind {at}/munge /run/munge && "
            f"munged --force --foreground --key-file={at}/munge/key --log-file={at}/munge/log "
            f"--seed-file={at}/munge/seed "
            f"--pid-file={at}/munge/pid & while [ ! -S {at}/munge/munge.socket.2 ]; do sleep 0.05; "
            "done; "
            f"exec slurmctld -D -f {at}/etc/slurm.conf"
        )
        inside = [
            "nsenter",
            f"--net=/run/netns/{self._namespace}",
            "unshare",
            "-m",
            "--propagation",
            "private",
        ]
        with (at / "out.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*inside, "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + patience(120)
        while "UP" not in self.run("scontrol", "ping", check=False):
            assert self._process.poll() is None and time.monotonic() < end, self.log()
            time.sleep(0.1)

    def run(self, *command: str, check: bool = True) -> str:
        """What a client command says."""
        inside = ["nsenter", f"--net=/run/netns/{self._namespace}", *command]
        environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        done = subprocess.run(
            inside,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=180,
            cwd="/",
        )
        assert not check or done.returncode == 0, (
            f"{command}: {done.stdout}{done.stderr}\n{self.log()}"
        )
        return done.stdout

    def state(self, node: str) -> str:
        """A node's state, as "IDLE+DRAIN"."""
        text = self.run("scontrol", "-o", "show", "node", node)
        return next(
            word.removeprefix("State=") for word in text.split() if word.startswith("State=")
        )

    def submit(self, node: str, script: str) -> str:
        """A batch job for one node; its number."""
        words = [
            "sbatch",
            "--parsable",
            f"--nodelist={node}",
            "--output=/dev/null",
            "--chdir=/",
            f"--wrap={script}",
        ]
        return self.run(*words).strip()

    def log(self) -> str:
        """What slurmctld has said."""
        found = [
            p.read_text(errors="replace")[-3000:]
            for p in (self._directory / "out.log", self._directory / "slurmctld.log")
            if p.exists()
        ]
        return "\n".join(found)

    def stop(self) -> None:
        """Ends both."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
