"""Starts Redfish emulators as children of one process that has imported everything: a fork costs a
hundredth of a start.

Reads one line per emulator from standard input, "CONFIG.json LOG", and writes the process id of
each. Ends, with all of them, when standard input closes.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from vrack import redfish_bmc
from vrack.metal import die_with_parent


def main() -> None:
    """One child a line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for one that was killed
    for line in sys.stdin:
        config, log = line.split()
        child = os.fork()
        if child == 0:
            die_with_parent()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os._exit(redfish_bmc.main(Path(config)))
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
