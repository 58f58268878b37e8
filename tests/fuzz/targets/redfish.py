"""Answers of Redfish services: the corpus, changed, with all that a driver reads and sets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from powerman.redfish.web import Web
from powerman.settings import BmcSpec
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.power.test_redfish_shapes import SHAPES, ask_everything, record
from tests.support.corpusredfish import CORPUS


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """A whole service, its resources by their paths."""
    loop = asyncio.new_event_loop()
    spec = BmcSpec.from_record("n1", record("http://192.0.2.1"))

    async def drive(data: bytes) -> None:
        try:
            resources = json.loads(data)
        except (ValueError, RecursionError):
            return
        if isinstance(resources, dict):
            for resource in resources.values():
                if isinstance(resource, dict):
                    resource.pop("#status", None)  # the corpus' own, no property of a service's
            web = Web()
            try:
                async with asyncio.timeout(30.0):
                    await ask_everything(spec, web, resources)
            finally:
                await web.close()

    seeds = [json.loads((CORPUS / f"{shape}.json").read_text()) for shape in SHAPES]
    try:
        yield Target(
            mutate.documents(seeds, 0.02),
            lambda data: loop.run_until_complete(drive(data)),
            slowest_s=2.0,
            peak_mb=128.0,
        )
    finally:
        loop.close()
