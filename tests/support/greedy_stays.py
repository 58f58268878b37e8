"""A process that stays (moduleapi.worker_process), and does what it is asked: some of it is more
than it may."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from layercake.moduleapi import worker_process


class Greedy:
    """Counts what it is asked."""

    asked = 0

    def answer(self, data: bytes) -> bytes:
        """What is asked for."""
        self.asked += 1
        if data == b"sleep":
            time.sleep(600)
        elif data == b"child":
            subprocess.run(["sh", "-c", "sleep 600; : greedy-child"], check=False)
        elif data == b"memory":
            return bytes(4 << 30)
        elif data == b"long":
            return bytes(2 << 20)
        elif data == b"talk":
            while True:
                sys.stdout.write("x" * 65536)
        elif data == b"die":
            sys.exit(3)
        elif data == b"environment":
            return json.dumps(dict(os.environ)).encode()
        elif data == b"grow":
            worker_process.GROWN = 0
        elif data == b"rest":
            worker_process.IDLE_S = 0.0
        elif data != b"count":
            return str(len(data)).encode()
        return str(self.asked).encode()


if __name__ == "__main__":
    worker_process.serve(Greedy().answer)
