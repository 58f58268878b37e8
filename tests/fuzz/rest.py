"""REST: schemathesis makes requests by the OpenAPI document of a head that serves, and holds its
answers against it.

The head has no modules, so no machine is asked for anything. `python -m tests.fuzz rest --inputs N`
tries each operation N / 1000 times.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.api import served, token
from tests.support.world import World, opened

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
SETTINGS = '[checks.not_a_server_error]\nexpected-statuses = ["2xx", "3xx", "4xx", "502", "503"]\n'
"""Modules and nodes that are not there are no fault of the head."""
NOT_TRIED = ("/v1/events/ws",)
"""What schemathesis cannot speak: a WebSocket."""


async def tried(
    world: World, examples: int, seed: int, report: Path, *more: str
) -> tuple[int, str]:
    """(exit status, what it said) after so many examples of each operation; `more` are words for
    its command."""
    headers = await token(world.head, "fuzz", "admin", may_exec=True)
    settings = report.with_suffix(".toml")
    settings.write_text(SETTINGS)
    async with served(world.head, local=False) as client:
        command = [
            sys.executable,
            "-m",
            "schemathesis.cli",
            "--config-file",
            str(settings),
            "run",
            str(client.make_url("/v1/openapi.json")),
            "--checks",
            CHECKS,
            "--phases",
            "coverage,fuzzing",
            "--max-examples",
            str(examples),
            "--seed",
            str(seed),
            "--continue-on-failure",
            "--no-color",
            "--warnings",
            "off",
            "--generation-database",
            "none",
            "--report",
            "ndjson",
            "--report-ndjson-path",
            str(report),
            "--suppress-health-check",
            "all",
            "--no-shrink",
            "--request-timeout",
            "60",
            *more,
        ]
        for name, value in headers.items():
            command += ["-H", f"{name}: {value}"]
        for path in NOT_TRIED:
            command += ["--exclude-path", path]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


def main(inputs: int, seed: int, directory: Path) -> bool:
    """Prints a line as of the other targets; whether nothing was found."""
    began = time.monotonic()
    status, said = asyncio.run(_run(max(1, inputs // 1000), seed, directory))
    counted = re.search(r"([0-9]+) generated", said)
    line: dict[str, Any] = {
        "target": "rest",
        "seed": seed,
        "inputs": int(counted[1]) if counted else 0,
        "seconds": round(time.monotonic() - began, 2),
        "unexpected": said.count("Test Case ID"),
        "well": status == 0,
    }
    print(json.dumps(line), flush=True)
    if status:
        print(said, file=sys.stderr)
    return status == 0


async def _run(examples: int, seed: int, directory: Path) -> tuple[int, str]:
    async with opened(directory) as world:
        return await tried(world, examples, seed, directory / "report.ndjson")
