"""Runs pyghmi for one request at a time in processes that are killed when they are late."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from layercake.base.secrets import without_secrets
from layercake.kraken.errors import LayercakeError, OperationFailed
from powerman.driver import Unsupported, login_refused, unreachable
from powerman.settings import BmcSpec

_ROOT = str(Path(__file__).resolve().parents[2])
_ANSWER_LIMIT = 4 << 20  # bytes: a long event log


class PyghmiPool:
    """At most `size` pyghmi processes at a time; a request waits for a free place."""

    def __init__(self, size: int = 4) -> None:
        self._places = asyncio.Semaphore(size)

    async def run(
        self, spec: BmcSpec, operation: str, limit_s: float, given: str = "", role: int = 4
    ) -> Any:
        """The result of one operation of `pyghmi_worker` with what it is given, which is killed
        after `limit_s` seconds. `role` is what it logs in for, see rmcp.ROLES.

        Raises Unreachable (when killed, too), LoginRefused, Unsupported, OperationFailed.
        """
        request = {
            "address": spec.address,
            "port": spec.port,
            "username": spec.username,
            "password": spec.password,
            "key": spec.key_bytes.hex(),
            "role": role,
            "firmware": spec.firmware,
            "operation": operation,
            "given": given,
        }
        places = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
        environment = {**without_secrets(os.environ), "PYTHONPATH": places}
        async with self._places:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "powerman.ipmi.pyghmi_worker",
                limit=_ANSWER_LIMIT,
                env=environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                async with asyncio.timeout(limit_s):
                    out, _ = await process.communicate(json.dumps(request).encode() + b"\n")
            except TimeoutError:
                raise unreachable(
                    spec.where, f"pyghmi did not end {operation} in {limit_s:.0f} s"
                ) from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        if not out:
            raise OperationFailed(
                f"cannot do {operation} at {spec.where}: pyghmi ended with status "
                f"{process.returncode}"
            )
        answer = json.loads(out)
        if answer["ok"]:
            return answer["result"]
        raise _error(spec, operation, answer["kind"], answer["error"])


def _error(spec: BmcSpec, operation: str, kind: str, text: str) -> LayercakeError:
    if kind == "login":
        return login_refused(spec.where, spec.username)
    if kind == "unreachable":
        return unreachable(spec.where, text)
    failed = Unsupported if kind == "unsupported" else OperationFailed
    return failed(f"cannot do {operation} at {spec.where}: {text}")
