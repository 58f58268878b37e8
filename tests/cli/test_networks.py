"""Networks on the command line: listed, and in plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.canned_api import CannedApi, node_view

Run = Callable[..., Any]
FAR = {
    "name": "far",
    "subnet": "10.20.0.0/24",
    "gateway": "10.20.0.1",
    "dns": ["10.1.1.1"],
    "ntp": [],
    "domain": "far.example.org",
    "mtu": 9000,
    "routes": {"10.30.0.0/16": "10.20.0.254"},
    "lease_s": None,
    "relays": [],
    "nodes": 127,
    "addresses": 254,
    "use": 0.5,
    "guest_addresses": 51,
    "guests_used": 3,
    "relay": {"relay": "10.20.0.1", "circuit": "swp1", "remote": "", "seconds_ago": 3.0},
}
OWN = {
    **FAR,
    "name": "",
    "subnet": "10.1.0.0/24",
    "gateway": None,
    "dns": [],
    "domain": "",
    "mtu": None,
    "routes": {},
    "nodes": 0,
    "use": 0.0,
    "guest_addresses": 0,
    "guests_used": None,
    "relay": None,
}
CHANGE = {
    "node": "far",
    "action": "change",
    "fields": {"gateway": ["10.20.0.1", "10.20.0.254"], "dns": [[], ["10.1.1.1"]]},
}


def test_networks_are_listed_with_what_they_tell_and_their_relay(run: Run, head: CannedApi) -> None:
    head.answers["GET /v1/networks"] = (200, {"networks": [OWN, FAR]})
    result = run("networks")
    assert result.code == 0
    first, own, far = result.out.splitlines()
    assert first.split()[:7] == ["NAME", "SUBNET", "GATEWAY", "NODES", "USE", "GUESTS", "DOMAIN"]
    assert own.split() == [
        "(the",
        "head's",
        "own)",
        "10.1.0.0/24",
        "-",
        "0",
        "0",
        "%",
        "-",
        "-",
        "-",
        "-",
    ]
    assert far.startswith("far") and " 127  50 %  3 of 51  " in far
    assert "  far.example.org  dns 10.1.1.1; mtu 9000; 10.30.0.0/16 via 10.20.0.254" in far
    assert "10.20.0.1 port swp1, 3.0s ago" in far
    assert json.loads(run("--json", "networks").out) == {"networks": [OWN, FAR]}


def test_a_node_is_shown_with_its_network(run: Run, head: CannedApi) -> None:
    for network, line in ((None, "address    10.0.0.1"), ("far", "address    10.0.0.1 in far")):
        head.answers["GET /v1/nodes/n0"] = (
            200,
            {"node": node_view(network=network), "history": []},
        )
        assert line in run("node", "show", "n0").out.splitlines()


def test_guests_are_listed(run: Run, head: CannedApi) -> None:
    laptop = {
        "network": "far",
        "mac": "02:00:00:00:00:01",
        "address": "10.20.0.200",
        "name": "laptop",
        "seconds": 300.0,
    }
    head.answers["GET /v1/networks/guests"] = (
        200,
        {"guests": [laptop, {**laptop, "name": "", "address": "10.20.0.201"}]},
    )
    first, one, two = run("networks", "--guests").out.splitlines()
    assert first.split() == ["MAC", "NAME", "ADDRESS", "NETWORK", "FOR"]
    assert (
        one.split()[:4] == ["02:00:00:00:00:01", "laptop", "10.20.0.200", "far"]
        and two.split()[1] == "-"
    )
    head.answers["GET /v1/networks/guests"] = (200, {"guests": []})
    assert "no guests" in run("networks", "--guests").out
    head.answers["GET /v1/networks/guests"] = (200, {"guests": None})
    result = run("networks", "--guests")
    assert result.code == 1 and "the module pxe does not answer" in result.out


def test_how_many_guests_there_are_is_said_as_far_as_it_is_known(run: Run, head: CannedApi) -> None:
    older = {key: value for key, value in FAR.items() if not key.startswith("guest")}
    head.answers["GET /v1/networks"] = (200, {"networks": [{**FAR, "guests_used": None}, older]})
    _, unknown, before = run("networks").out.splitlines()
    assert "  ? of 51  " in unknown and "  -  far.example.org" in before


def test_no_networks_are_said(run: Run, head: CannedApi) -> None:
    head.answers["GET /v1/networks"] = (200, {"networks": []})
    assert "they stand under `networks` in the inventory" in run("networks").out


def test_a_plan_that_changes_networks_only_is_shown_and_applied(
    run: Run, head: CannedApi, tmp_path: Path
) -> None:
    head.answers["POST /v1/inventory/plan"] = (
        200,
        {
            "changes": [],
            "plans": [],
            "digest": "d1",
            "warnings": [],
            "networks": [
                CHANGE,
                {"node": "new", "action": "add", "fields": {"subnet": [None, "10.9.0.0/24"]}},
                {"node": "old", "action": "remove", "fields": {"subnet": ["10.8.0.0/24", None]}},
            ],
        },
    )
    head.answers["POST /v1/inventory/apply"] = (
        200,
        {"revision": 7, "changed": [], "networks": ["far", "new", "old"]},
    )
    path = tmp_path / "rack.yaml"
    path.write_text("nodes: {}\n")
    assert run("plan", str(path)).out.splitlines() == [
        "network far: gateway: 10.20.0.1 -> 10.20.0.254, dns: (none) -> 10.1.1.1",
        "network new: is new, subnet 10.9.0.0/24",
        "network old: is removed",
        "no node changes",
    ]
    assert run("apply", str(path), "--yes").code == 0
    assert head.asked("POST /v1/inventory/apply")[0]["digest"] == "d1"


NAMES = {
    "serves": True,
    "address": "10.1.0.1",
    "domains": ["cluster.internal"],
    "forward": ["10.9.9.9"],
    "ours": True,
    "records": [
        {
            "name": "n0.cluster.internal",
            "type": "A",
            "data": "10.1.0.10",
            "node": "n0",
            "bmc": False,
        },
        {"name": "layercake", "type": "A", "data": "10.1.0.1", "node": "", "bmc": False},
    ],
}


def test_names_are_listed(run: Run, head: CannedApi) -> None:
    head.answers["GET /v1/dns"] = (200, NAMES)
    assert [line.split() for line in run("dns").out.splitlines()] == [
        ["NAME", "TYPE", "DATA", "NODE"],
        ["layercake", "A", "10.1.0.1", "(the", "head)"],
        ["n0.cluster.internal", "A", "10.1.0.10", "n0"],
    ]
    assert json.loads(run("--json", "dns", "n0").out) == NAMES


def test_a_name_that_is_not_there_and_one_that_is_others(run: Run, head: CannedApi) -> None:
    head.answers["GET /v1/dns"] = (200, {**NAMES, "records": []})
    result = run("dns", "n7")
    assert result.code == 1 and "there is no n7 in the head's zones" in result.out
    head.answers["GET /v1/dns"] = (200, {**NAMES, "records": [], "ours": False})
    assert (
        run("dns", "www.example.org").out
        == "www.example.org is in no zone of the head: it is asked of 10.9.9.9\n"
    )
    head.answers["GET /v1/dns"] = (200, {**NAMES, "serves": None, "records": []})
    assert "the module pxe does not answer" in run("dns").out
    head.answers["GET /v1/dns"] = (200, {**NAMES, "serves": False, "records": []})
    assert "serves no DNS" in run("dns").out
