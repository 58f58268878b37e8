"""Runs commands given as JSON on stdin: [[{"prefix": ...}, input text], ...]; prints their outputs
as a JSON list.

They go to the monitor, those with {"osd": N} to that OSD.

A process of its own, because the cluster is in a network namespace that the caller is not in. The
first command may take as long as the cluster needs to come up. A command that fails ends it with
status 1 and the monitor's own words."""

from __future__ import annotations

import functools
import json
import sys

import rados

LIMITS = {"client_mount_timeout": "20", "rados_mon_op_timeout": "20", "rados_osd_op_timeout": "20"}


def main(conf: str, keyring: str) -> int:
    """The command line; returns the exit status."""
    commands = json.load(sys.stdin)
    cluster = rados.Rados(conffile=conf, name="client.admin", conf={**LIMITS, "keyring": keyring})
    cluster.connect(timeout=20)
    answers = []
    try:
        for command, text in commands:
            osd = command.pop("osd", None)
            send = (
                cluster.mon_command if osd is None else functools.partial(cluster.osd_command, osd)
            )
            status, out, error = send(json.dumps(command), text.encode(), timeout=20)
            if status:
                print(f"{command['prefix']}: {error} ({status})", file=sys.stderr)
                return 1
            answers.append(out.decode())
    finally:
        cluster.shutdown()
    print(json.dumps(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
