"""What the CLI asks for is what the head's API has: each path is a route, each query a parameter,
each body fits its struct."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from docs.generator import interfaces
from layercake.api.route import Operation
from tests.cli.canned_api import CannedApi

Run = Callable[..., Any]
COMMANDS = [
    line.split()
    for line in """\
    status
    plan FILE
    apply FILE --yes --no-wait --allow-remove
    node list n[0-1]
    node show n0
    node explain n0
    node logs n0 --container debian --lines 5
    node clear n0
    node up n0
    node off n0 --force --yes
    image list
    image add debian /x.sqsh --no-systemd --command /init --env A=b --stop-timeout 3 --restart always
    image diff debian@ab debian
    image history debian
    image remove debian --yes
    image prune --yes
    image roll n0 debian --replace alpine --no-wait
    image roll n0 debian --batch 10% --max-unavailable 2 --canary 1 --health-timeout 3 --on-failure pause --no-wait
    image roll n0 debian --stages test,all --on-stage-failure fail
    roll status
    roll status 1 --all
    roll status 1 --follow
    roll pause 1
    roll resume
    roll abort 1
    power status n0
    power on n0
    power off n0 --yes --force
    power cycle n0 --yes
    events --node n0 --kind boot --since 1 --limit 2
    graph --node n0 --format svg
    token list
    token create ann --role operator --group physics --exec --expires 30d
    token revoke ann --yes
    audit --since 7d
""".splitlines()
]


@pytest.fixture(scope="module")
def routes() -> list[Operation]:
    """The operations of all features; none of these is started."""
    return interfaces.routes()


def asked(run: Run, head: CannedApi, command: list[str], file: Path) -> list[tuple[str, Any, Any]]:
    planned = {
        "changes": [{"node": "n0", "action": "remove", "fields": {}}],
        "plans": [],
        "digest": "d",
    }
    head.answers["POST /v1/inventory/plan"] = (200, planned)
    file.write_text("nodes: {}\n")
    run(*[str(file) if word == "FILE" else word for word in command])
    return list(head.requests)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_request_fits_a_route(
    run: Run, head: CannedApi, routes: list[Operation], command: list[str], tmp_path: Path
) -> None:
    requests = asked(run, head, command, tmp_path / "rack.yaml")
    assert requests
    for key, query, body in requests:
        method, path = key.split()
        route = next(
            (
                r
                for r in routes
                if r.method == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", r.path), path)
            ),
            None,
        )
        assert route is not None, f"the API has no {key}"
        assert set(query) <= set(route.query)
        assert (body is None) == (route.body is None)
        if route.body is not None:
            msgspec.json.decode(json.dumps(body).encode(), type=route.body)
