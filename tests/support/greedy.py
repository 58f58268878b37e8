"""A process that wants more than it may have: what is on its standard input says what."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time


def main() -> None:
    """Does it."""
    order = sys.stdin.buffer.read(4)
    if order == b"deaf":
        sys.exit(3)
    order += sys.stdin.buffer.read()
    if order == b"sleep":
        time.sleep(600)
    elif order == b"mute":
        sys.stdout.write("all that there is")
        sys.stdout.flush()
        os.close(1)
        time.sleep(600)
    elif order == b"child":
        subprocess.run(["sh", "-c", "sleep 600; : greedy-child"], check=False)
    elif order == b"memory":
        sys.stdout.write(str(len(bytearray(4 << 30))))
    elif order == b"talk":
        while True:
            sys.stdout.write("x" * 65536)
    elif order == b"environment":
        sys.stdout.write(json.dumps(dict(os.environ)))
    else:
        sys.exit(3)


if __name__ == "__main__":
    main()
