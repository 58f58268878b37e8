"""Each feature can be taken out of the table: what does not need it starts, loads and serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from layercake.agents.settings import SyncSettings
from layercake.api.route import operations
from layercake.head.features import FEATURES
from layercake.head.head import Head
from layercake.head.settings import Settings
from layercake.kernel.feature import Feature
from tests.support.api import served
from tests.support.clock import FakeClock

ALONE = {
    "access",
    "authority",
    "captures",
    "events",
    "heads",
    "logs",
    "power",
    "releases",
    "remote",
    "slurm",
    "status",
    "tpm",
    "webhooks",
}
"""The features that nothing else needs."""


def without(name: str) -> list[Feature]:
    """The features that can do without one."""
    gone = {name}
    while more := {f.name for f in FEATURES if gone & set(f.needs)} - gone:
        gone |= more
    return [feature for feature in FEATURES if feature.name not in gone]


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
async def test_the_rest_starts_and_serves(feature: Feature, tmp_path: Path) -> None:
    rest = without(feature.name)
    assert (len(rest) == len(FEATURES) - 1) == (feature.name in ALONE)
    settings = Settings(
        interface="lo",
        address="127.0.0.1",
        api_port=0,
        socket=str(tmp_path / "api.sock"),
        sync=SyncSettings(port=0),
    )
    head = Head(tmp_path, settings, FakeClock(), features=rest)
    head.load()
    try:
        async with served(head, local=True) as client, client.get("/v1/openapi.json") as answer:
            paths = (await answer.json())["paths"]
        wanted = {o.path_shown for f in rest for routes in f.routes for _, o in operations(routes)}
        assert set(paths) == wanted
    finally:
        await head.features.stop()
        await head.database.close(head.store)
