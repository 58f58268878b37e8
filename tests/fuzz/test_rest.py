"""Half a minute of REST by schemathesis; `make fuzz` goes on for longer. And answers that are not
as described are found."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from docs.generator.interfaces import routes
from layercake.features.access.audit import Audit
from tests.fuzz.rest import NOT_TRIED, tried
from tests.support.api import not_described, served, token
from tests.support.world import opened


async def test_answers_are_as_the_document_says(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        status, said = await tried(world, 5, 1, tmp_path / "report.ndjson")
        assert status == 0, said
    done = statuses(tmp_path / "report.ndjson")
    tried_ones = {f"{r.method} {r.path_shown}" for r in routes() if r.path not in NOT_TRIED}
    assert set(done) == tried_ones, "each operation was tried"
    assert sum(counts[200] for counts in done.values()) > 20 and not any(
        counts[500] for counts in done.values()
    )


def statuses(report: Path) -> dict[str, Counter[int]]:
    """How often each operation was answered how."""
    found: dict[str, Counter[int]] = {}
    for line in report.read_text().splitlines():
        scenario: dict[str, Any] = json.loads(line).get("ScenarioFinished") or {}
        recorder = scenario.get("recorder") or {}
        counts = found.setdefault(recorder.get("label", ""), Counter())
        counts.update(
            i["response"]["status_code"]
            for i in recorder.get("interactions", {}).values()
            if i.get("response")
        )
    found.pop("", None)
    return found


async def test_an_answer_that_is_not_described_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document says one thing, the handler another: schemathesis ends with an error, and so
    does any test."""

    async def wrong(*args: Any) -> Any:
        return "no list"

    async with opened(tmp_path) as world:
        monkeypatch.setattr(world.head.part(Audit), "read", wrong)
        async with served(world.head, local=False) as client:
            headers = await token(world.head, "t", "admin")
            assert (await client.get("/v1/audit", headers=headers)).status == 500
        status, said = await tried(
            world, 1, 1, tmp_path / "report.ndjson", "--include-path", "/v1/audit"
        )
    assert status == 1 and "GET /v1/audit" in said
    assert not_described({"nodes": [], "more": 1}, {"nodes": []}) == [".more"]
