"""A real NFS server, nfs-ganesha, which serves a directory as /export by NFS 3 and 4."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from patience import patience

CONFIG = """
NFS_CORE_PARAM {{ Protocols = 3,4; mount_path_pseudo = true; MNT_Port = 20048; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSV4 {{ Graceless = true; RecoveryRoot = {home}/recovery; Lease_Lifetime = 10; }}
EXPORT_DEFAULTS {{ Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Transports = TCP; }}
EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = /export; FSAL {{ Name = VFS; }} }}
EXPORT {{ Export_Id = 2; Path = {export}/closed; Pseudo = /closed; Access_Type = NONE; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = EVENT; }}
"""


class NfsServer:
    """ganesha over `home`/export, with an rpcbind of its own. `prefix` runs it elsewhere, as `ip
    netns exec NAME`."""

    def __init__(self, home: Path, prefix: Sequence[str]) -> None:
        self.export, self._home, self._prefix = home / "export", home, prefix
        (self.export / "closed").mkdir(parents=True)
        (home / "recovery").mkdir()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it; returns when it serves."""
        config, log = self._home / "ganesha.conf", self._home / "ganesha.log"
        config.write_text(CONFIG.format(home=self._home, export=self.export))
        script = (
            f"mount -t tmpfs none /run; rpcbind; exec ganesha.nfsd -F -f {config} -L {log} "
            "-p /run/ganesha.pid"
        )
        self.process = subprocess.Popen(
            [*self._prefix, "unshare", "-m", "--propagation", "private", "sh", "-c", script]
        )
        deadline = time.monotonic() + patience(120)
        while not (log.exists() and "NFS SERVER INITIALIZED" in log.read_text()):
            said = log.read_text() if log.exists() else "no word of ganesha"
            assert self.process.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.1)

    def hang(self) -> None:
        """It takes connections, and answers nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """It answers again."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ends it."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait(30)
