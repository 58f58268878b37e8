"""plan and apply: what is shown, what is asked, what is waited for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layercake.client.watch import FEW
from tests.cli.canned_api import CannedApi, node_view, working

Run = Callable[..., Any]
CHAIN = [
    "power-discover",
    "power-on",
    "boot-arm",
    "boot-wait",
    "attach",
    "image-discover",
    "image-start",
]
UP = {"power": "ON", "run": "SYNC", "image": "ACTIVE"}


def added(name: str) -> dict[str, Any]:
    fields = {"state": [None, "up"], "images": [None, ["debian"]], "ip": [None, "10.0.0.1"]}
    return {"node": name, "action": "add", "fields": fields}


def plan_of(*changes: dict[str, Any], blocked: str | None = None) -> dict[str, Any]:
    plans = [
        {"node": c["node"], "chain": CHAIN, "to": UP, "blocked": blocked}
        for c in changes
        if c["action"] != "remove"
    ]
    return {"changes": list(changes), "plans": plans, "digest": "d1", "warnings": []}


@pytest.fixture
def rack(head: CannedApi, tmp_path: Path) -> str:
    """An inventory file, and a head that plans to add two nodes for it."""
    head.answers["POST /v1/inventory/plan"] = (200, plan_of(added("n0"), added("n1")))
    head.answers["POST /v1/inventory/apply"] = (200, {"revision": 7, "changed": ["n0", "n1"]})
    path = tmp_path / "rack.yaml"
    path.write_text("nodes: {}\n")
    return str(path)


def test_plan_shows_nodes_with_the_same_change_in_one_row(
    run: Run, head: CannedApi, rack: str
) -> None:
    result = run("plan", rack)
    assert result.code == 0
    assert result.out.splitlines() == [
        "NODES   ACTION  CHANGE                   WAY",
        "n[0-1]  add     state up, images debian  " + " > ".join(CHAIN),
    ]
    assert head.asked("POST /v1/inventory/plan") == [{"yaml": "nodes: {}\n", "file": rack}]
    assert not head.asked("POST /v1/inventory/apply")


@pytest.mark.parametrize(
    ("chain", "later", "way"),
    [
        ([], ["kernel_args"], "kernel_args at the next boot"),
        (["image-update"], ["console"], "image-update; console at the next boot"),
        (["image-update"], [], "image-update"),
        ([], [], "is there already"),
    ],
    ids=["boot", "both", "now", "nothing"],
)
def test_plan_says_what_takes_effect_at_the_next_boot(
    run: Run, head: CannedApi, rack: str, chain: list[str], later: list[str], way: str
) -> None:
    change = {"node": "n0", "action": "change", "fields": {"kernel_args": ["", "quiet"]}}
    planned = plan_of(change)
    planned["plans"][0] |= {"chain": chain, "at_boot": later}
    head.answers["POST /v1/inventory/plan"] = (200, planned)
    head.answers["POST /v1/inventory/apply"] = (
        200,
        {"revision": 7, "changed": ["n0", "n1"], "at_boot": {"n0": later, "n1": later}}
        if later
        else {"revision": 7, "changed": ["n0"], "at_boot": {}},
    )
    assert run("plan", rack).out.splitlines()[1].endswith(f"  {way}")
    said = run("apply", rack, "--yes", "--no-wait").out.splitlines()
    told = f"n[0-1]: {', '.join(later)} at the next boot; `layercake power cycle n[0-1]` boots anew"
    assert (told in said) == bool(later)


def test_plan_says_what_becomes_of_machines_that_are_found_running(
    run: Run, head: CannedApi, rack: str
) -> None:
    planned = plan_of(*map(added, ("n0", "n1", "n2", "n3")))
    for entry, adopt in zip(planned["plans"], ("ask", "ask", "reset", None), strict=True):
        entry["adopt"] = adopt
    head.answers["POST /v1/inventory/plan"] = (200, planned)
    for command in (["plan", rack], ["apply", rack, "--yes", "--no-wait"]):
        said = run(*command).out
        assert (
            "\nn[0-1]: new; one that is found running is left alone until "
            "`layercake node take RANGE` (adopt: ask)\n" in said
        )
        assert (
            "\nn2: new; one that is found running is ended, and started anew (adopt: reset)\n"
            in said
        )
        assert "n3: new" not in said, "nobody can end what runs there"


def test_apply_sends_the_plans_digest_and_follows_until_all_converge(
    run: Run, head: CannedApi, rack: str
) -> None:
    head.snapshots = [
        [working("n0"), working("n1")],
        [node_view("n0"), working("n1")],
        [node_view("n0"), node_view("n1")],
    ]
    result = run("apply", rack, "--yes")
    assert result.code == 0, result.err
    (asked,) = head.asked("POST /v1/inventory/apply")
    assert isinstance(asked.pop("by"), str)
    assert asked == {
        "yaml": "nodes: {}\n",
        "file": rack,
        "digest": "d1",
        "allow_remove": False,
        "take_back": False,
        "at_once": False,
    }
    progress = [line.split()[1:3] for line in result.out.splitlines() if "s  n" in line]
    assert progress == [
        ["n0", "working"],
        ["n1", "working"],
        ["n0", "converged"],
        ["n1", "converged"],
    ]
    assert ("GET /v1/nodes", {"range": "n[0-1]"}, None) in head.requests


def test_apply_with_json_is_one_document(run: Run, head: CannedApi, rack: str) -> None:
    head.snapshots = [[node_view("n0"), node_view("n1")]]
    result = run("apply", rack, "--yes", "--json")
    document = json.loads(result.out)
    assert (result.code, document["revision"], document["converged"]) == (0, 7, True)
    assert [(n["name"], n["done"]) for n in document["nodes"]] == [("n0", True), ("n1", True)]
    assert all(n["seconds"] >= 0 for n in document["nodes"])


def test_apply_asks_and_no_means_nothing_happens(run: Run, head: CannedApi, rack: str) -> None:
    result = run("apply", rack, answer="n")
    assert result.code == 1
    assert "nothing was changed" in result.err
    assert not head.asked("POST /v1/inventory/apply")
    assert run("apply", rack, "--no-wait", answer="y").code == 0
    assert head.asked("POST /v1/inventory/apply")


def test_apply_without_anyone_to_ask_is_exit_2(run: Run, head: CannedApi, rack: str) -> None:
    result = run("apply", rack)
    assert result.code == 2
    assert "--yes" in result.err
    assert not head.asked("POST /v1/inventory/apply")


def test_a_node_in_quarantine_is_exit_1_and_says_where_to_look(
    run: Run, head: CannedApi, rack: str
) -> None:
    head.snapshots = [
        [
            node_view("n0"),
            node_view("n1", status="quarantined", status_text="boot-wait: never answered DHCP"),
        ]
    ]
    result = run("apply", rack, "--yes")
    assert result.code == 1
    assert "boot-wait: never answered DHCP" in result.out
    assert (
        result.err
        == "1 of 2 nodes are not where they should be: n1\nhint: layercake node explain n1\n"
    )


def test_many_nodes_are_counted_on_the_way_and_folded_at_the_end(
    run: Run, head: CannedApi, rack: str
) -> None:
    names = [f"n{number}" for number in range(FEW + 4)]
    head.answers["POST /v1/inventory/apply"] = (200, {"revision": 7, "changed": names})
    bad = node_view("n7", status="quarantined", status_text="boot-wait: never answered DHCP")
    there = [bad if name == "n7" else node_view(name) for name in names]
    head.snapshots = [[working(name) for name in names], there, there]
    lines = run("apply", rack, "--yes").out.splitlines()
    followed = [line.split("s  ", 1)[1] for line in lines if " nodes: " in line]
    assert followed[0] == "20 nodes: 20 working"
    assert followed[-1] == "20 nodes: 19 converged, 1 quarantined"
    table = [line.split() for line in lines[lines.index(next(filter(_is_head, lines))) + 1 :]]
    assert [row[:2] for row in table] == [["n[0-6,8-19]", "converged"], ["n7", "quarantined"]]


def _is_head(line: str) -> bool:
    return line.startswith("NODE ") and "STATUS" in line


def test_a_timeout_is_exit_1(run: Run, head: CannedApi, rack: str) -> None:
    head.snapshots = [[working("n0"), working("n1")]]
    result = run("apply", rack, "--yes", "--timeout", "0")
    assert result.code == 1
    assert "after 0 s: n[0-1]" in result.err


def test_removal_needs_to_be_allowed(run: Run, head: CannedApi, rack: str) -> None:
    gone = {"node": "n9", "action": "remove", "fields": {"ip": ["10.0.0.9", None]}}
    head.answers["POST /v1/inventory/plan"] = (200, plan_of(gone))
    head.answers["POST /v1/inventory/apply"] = (200, {"revision": 8, "changed": ["n9"]})
    result = run("apply", rack, "--yes")
    assert result.code == 4
    assert "would remove n9" in result.err and "--allow-remove" in result.err
    assert not head.asked("POST /v1/inventory/apply")
    result = run("apply", rack, "--yes", "--allow-remove")
    assert result.code == 0
    assert head.asked("POST /v1/inventory/apply")[0]["allow_remove"] is True


def test_a_node_that_is_removed_while_it_is_followed_is_gone(
    run: Run, head: CannedApi, rack: str
) -> None:
    def nodes(request: Any, body: Any) -> tuple[int, Any]:
        if request.query.get("range"):
            return 400, {"error": "cannot use node range: there is no node n1", "hint": ""}
        return 200, {"nodes": [node_view("n0")]}

    head.answers["GET /v1/nodes"] = nodes
    result = run("apply", rack, "--yes")
    assert result.code == 1
    assert "no longer in the inventory" in result.out


def test_nothing_to_change_is_ok_and_asks_nothing(run: Run, head: CannedApi, rack: str) -> None:
    head.answers["POST /v1/inventory/plan"] = (200, plan_of())
    result = run("apply", rack)
    assert (result.code, result.out) == (0, "nothing to change\n")
    assert json.loads(run("apply", rack, "--json").out)["changed"] == []
    assert not head.asked("POST /v1/inventory/apply")


def test_every_mistake_is_printed_with_file_and_line(run: Run, head: CannedApi, rack: str) -> None:
    problems = [
        {
            "file": rack,
            "line": n,
            "column": 3,
            "message": f"mistake {n}",
            "hint": "did you mean bios?",
        }
        for n in (2, 5)
    ]
    head.answers["POST /v1/inventory/plan"] = (
        422,
        {"error": "cannot use inventory", "hint": "", "problems": problems},
    )
    result = run("apply", rack, "--yes")
    assert (result.code, result.out) == (2, "")
    assert (
        f"  {rack}:2:3: mistake 2 (hint: did you mean bios?)\n  {rack}:5:3: mistake 5 (hint: did "
        "you mean bios?)\n" in result.err
    )
    assert "2 mistakes" in result.err
    assert json.loads(run("plan", rack, "--json").out)["problems"] == problems


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_exit_2(
    run: Run, head: CannedApi, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "x.yaml"
    if content is not None:
        path.write_bytes(content)
    result = run("apply", str(path), "--yes")
    assert result.code == 2
    assert f"cannot read inventory {path}" in result.err
    assert not head.requests


def test_a_change_shows_old_and_new_and_a_block_its_reason(
    run: Run, head: CannedApi, rack: str
) -> None:
    fields = {"images": [["debian"], ["alpine"]], "bmc.password": [{"file": "/a"}, {"env": "B"}]}
    change = {"node": "n0", "action": "change", "fields": fields}
    head.answers["POST /v1/inventory/plan"] = (200, plan_of(change, blocked="BUSY"))
    out = run("plan", rack).out
    assert "images: debian -> alpine, bmc.password: file /a -> env B" in out
    assert "blocked: BUSY" in out


def changed(*names: str, old: str = "one", new: str = "two") -> list[dict[str, Any]]:
    return [{"node": n, "action": "change", "fields": {"images": [[old], [new]]}} for n in names]


def test_a_plan_says_who_would_roll_how_and_who_at_once(
    run: Run, head: CannedApi, rack: str
) -> None:
    how = {"canary": 1, "batch": "10%", "max_unavailable": None, "on_failure": "rollback"}
    rolls = [{"nodes": [f"n{i}" for i in range(11)], "images": ["two"], "plan": how}]
    plan = {
        **plan_of(*changed(*rolls[0]["nodes"], "n99")),
        "rolls": rolls,
        "at_once": ["n99"],
        "taken_back": [],
    }
    head.answers["POST /v1/inventory/plan"] = (200, plan)
    lines = run("plan", rack).out.splitlines()
    assert "n[0-10]: to two by a roll, canary 1, batches of 10%, on failure rollback" in lines
    assert "n99: other images at once, nothing runs there" in lines


def test_apply_follows_the_rolls_that_it_begins(run: Run, head: CannedApi, rack: str) -> None:
    view = {
        "id": 4,
        "state": "failed",
        "image": "two",
        "stages": ["all"],
        "stage": "all",
        "batch": 1,
        "reason": "batch 1: n0 lost",
        "counts": {"failed": 1, "skipped": 1},
        "nodes_total": 2,
        "nodes": [],
    }
    head.answers["POST /v1/inventory/plan"] = (200, plan_of(*changed("n0", "n1"), added("n2")))
    begun = [{"id": 4, "nodes": ["n0", "n1"]}]
    head.answers["POST /v1/inventory/apply"] = (
        200,
        {"revision": 7, "changed": ["n0", "n1", "n2"], "rolls": begun},
    )
    head.answers["GET /v1/rolls/4"] = (200, {"roll": view})
    head.snapshots = [[node_view("n2")]]
    result = run("apply", rack, "--yes")
    assert result.code == 1
    assert (
        "following 1 node," in result.out
        and "failed, batch 1" in result.out
        and "n0 lost" in result.out
    )
    document = json.loads(run("apply", rack, "--yes", "--json").out)
    assert (
        document["converged"],
        document["rolls"][0]["id"],
        [n["name"] for n in document["nodes"]],
    ) == (False, 4, ["n2"])
    assert (
        "roll 4: n[0-1]; see `layercake roll status 4 --follow`"
        in run("apply", rack, "--yes", "--no-wait").out
    )


def test_what_image_roll_brought_is_not_taken_back_unasked(
    run: Run, head: CannedApi, rack: str
) -> None:
    back = {"nodes": ["n0", "n1"], "images": ["debian-2"], "to": ["debian-1"]}
    head.answers["POST /v1/inventory/plan"] = (
        200,
        {**plan_of(*changed("n0", "n1")), "taken_back": [back]},
    )
    text = "n[0-1]: rolled to debian-2 since; this inventory takes them back to debian-1"
    assert text in run("plan", rack).err
    refused = run("apply", rack, "--yes")
    assert refused.code == 4 and text in refused.err and "--take-back" in refused.err
    assert run("apply", rack, answer="n").code == 1
    assert not head.asked("POST /v1/inventory/apply")
    assert run("apply", rack, "--no-wait", answer="y").code == 0
    assert run("apply", rack, "--yes", "--take-back", "--no-wait").code == 0
    assert [body["take_back"] for body in head.asked("POST /v1/inventory/apply")] == [True, True]


def test_the_question_before_nodes_are_removed_counts_those_at_work(
    run: Run, head: CannedApi, rack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {"node": "n9", "action": "remove", "fields": {"ip": ["10.0.0.9", None]}}
    head.answers["POST /v1/inventory/plan"] = (200, plan_of(gone))
    busy = node_view("n9")
    head.snapshots = [[node_view("n0"), {**busy, "state": {**busy["state"], "busy": "BUSY"}}]]
    asked: list[str] = []
    assert run("apply", rack, "--allow-remove", answer="n", asked=asked).code == 1
    assert asked == ["Apply this to 1 node, and remove 1 node, 1 of them running, 1 BUSY (n9)?"]


def test_images_that_change_at_once_are_counted_before(
    run: Run, head: CannedApi, rack: str
) -> None:
    how = {"canary": 1, "batch": "10%", "max_unavailable": None, "on_failure": "rollback"}
    plan = {
        **plan_of(*changed("n0", "n1")),
        "rolls": [{"nodes": ["n0", "n1"], "images": ["two"], "plan": how}],
        "at_once": [],
    }
    head.answers["POST /v1/inventory/plan"] = (200, plan)
    head.snapshots = [[node_view("n0"), node_view("n1"), node_view("n2")]]
    asked: list[str] = []
    found = run("apply", rack, "--at-once", answer="n", asked=asked)
    assert "n[0-1]: to two at once" in found.out
    assert asked == [
        "Apply this to 2 nodes, and change the images at once of 2 nodes, 2 of them running, none "
        "BUSY?"
    ]
    assert run("apply", rack, "--at-once", "--yes", "--no-wait").code == 0
    assert head.asked("POST /v1/inventory/apply")[0]["at_once"] is True


def test_a_secret_goes_to_another_address_only_when_somebody_says_so(
    run: Run, head: CannedApi, rack: str
) -> None:
    entry = {
        "node": "n0",
        "from": "redfish https://10.2.0.9 port 443",
        "to": "redfish https://10.2.0.66 port 443",
    }
    warned = {
        "file": rack,
        "line": 0,
        "column": 0,
        "message": "n0: the BMC's password goes over http://",
        "hint": "",
    }
    head.answers["POST /v1/inventory/plan"] = (
        200,
        {**plan_of(*changed("n0")), "secrets": [entry], "warnings": [warned]},
    )
    text = (
        "n0: its secret goes to redfish https://10.2.0.66 port 443, and went to redfish "
        "https://10.2.0.9 port 443"
    )
    told = run("plan", rack).err
    assert text in told and "\nn0: the BMC's password goes over http://" in f"\n{told}"
    refused = run("apply", rack, "--yes")
    assert refused.code == 4 and text in refused.err and "--confirm-secrets" in refused.err
    assert run("apply", rack, answer="n").code == 1
    assert not head.asked("POST /v1/inventory/apply")
    assert run("apply", rack, "--yes", "--confirm-secrets", "--no-wait").code == 0
    (asked,) = head.asked("POST /v1/inventory/apply")
    assert asked["confirm_secrets"] is True
