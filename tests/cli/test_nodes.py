"""node, power, image, status, graph, events: tables, JSON, questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layercake.client.watch import converged
from tests.cli.canned_api import CannedApi, event, node_view, working

Run = Callable[..., Any]


@pytest.fixture
def full(head: CannedApi) -> CannedApi:
    """A head that answers everything."""
    image = {
        "name": "debian",
        "digest": "blake2b:0123456789abcdef",
        "size": 123_456_789,
        "created": 1700000000.0,
        "used_by": ["n0", "n1"],
        "container": {"systemd": True},
        "history": [],
    }
    head.snapshots = [[node_view("n0"), working("n1")]]
    head.answers.update(
        {
            "GET /v1/rolls": (200, {"rolls": []}),
            "GET /v1/status": (
                200,
                {
                    "version": "0.1.0",
                    "epoch": 5,
                    "uptime_s": 90.0,
                    "nodes": {"total": 2, "converged": 1, "working": 1, "quarantined": 0},
                    "guard": {"frozen": None, "outages": [], "waiting": 0, "silent": 0},
                    "database": {"well": True, "trouble": "", "since_s": None, "waiting": 0},
                    "services": [
                        {
                            "name": "pxe",
                            "state": "running",
                            "pid": 42,
                            "restarts": 0,
                            "health": "running",
                            "since_s": 80.0,
                        }
                    ],
                },
            ),
            "GET /v1/nodes/n0": (
                200,
                {
                    "node": node_view("n0"),
                    "history": [event(i, f"event {i}") for i in range(1, 31)],
                },
            ),
            "GET /v1/nodes/n0/explain": (
                200,
                {"explanation": {"node": "n0"}, "text": "n0: working\n  is: power=ON"},
            ),
            "GET /v1/nodes/n0/logs": (200, {"text": "line 1\nline 2\n"}),
            "PATCH /v1/nodes/n0": (
                200,
                {"revision": 3, "changed": ["n0"], "networks": [], "rolls": []},
            ),
            "POST /v1/nodes/clear": (200, {"nodes": ["n0", "n1"]}),
            "POST /v1/nodes/state": (200, {"nodes": ["n0", "n1"]}),
            "GET /v1/images": (200, {"images": [image]}),
            "POST /v1/images": (200, {"image": image}),
            "DELETE /v1/images/debian": (200, {}),
            "POST /v1/images/roll": (200, {"nodes": ["n0"]}),
            "GET /v1/power": (
                200,
                {
                    "power": [
                        {
                            "node": "n0",
                            "power": "ON",
                            "driver": "ipmi",
                            "address": "10.1.0.1",
                            "error": None,
                        }
                    ]
                },
            ),
            "POST /v1/power": (200, {"nodes": [{"node": "n0", "accepted": True, "why": ""}]}),
            "GET /v1/events": (200, {"events": [event(1), event(2, severity="error")]}),
            "GET /v1/graph": (200, "digraph { a -> b }\n"),
        }
    )
    return head


COMMANDS = [
    line.split()
    for line in """\
    status
    node list
    node list n[0-1]
    node show n0
    node explain n0
    node logs n0
    node set n0 console=ttyS1 --unset kernel_args
    node clear n[0-1]
    node up @all
    node off n0 --yes
    image list
    image add debian /x.sqsh
    image remove debian --yes
    image roll n0 debian --no-wait
    power status
    power on n0
    power off n0 --yes
    power cycle n0 --yes
    events
    graph --node n0
""".splitlines()
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_speaks_json_and_text(run: Run, full: CannedApi, command: list[str]) -> None:
    result = run(*command, "--json")
    assert (result.code, result.err) == (0, "")
    assert isinstance(json.loads(result.out), dict)
    assert run("--json", *command).out == result.out
    result = run(*command)
    assert (result.code, result.err) == (0, "")
    assert result.out and not any(line != line.rstrip() for line in result.out.splitlines())


def test_node_list_is_one_line_per_node_that_is_not_cut(run: Run, full: CannedApi) -> None:
    full.snapshots = [
        [node_view("n0"), node_view("n1", status="quarantined", status_text="x" * 300)]
    ]
    lines = run("node", "list").out.splitlines()
    assert lines[0].split() == [
        "NAME",
        "STATUS",
        "POWER",
        "RUN",
        "IMAGE",
        "IMAGES",
        "IP",
        "SEEN",
        "DETAIL",
    ]
    assert lines[1].split() == [
        "n0",
        "converged",
        "ON",
        "SYNC",
        "ACTIVE",
        "debian",
        "10.0.0.1",
        "0.4s",
    ]
    assert len(lines) == 3 and lines[2].endswith("x" * 300)


def test_node_list_sends_the_range_and_an_empty_head_says_so(run: Run, full: CannedApi) -> None:
    run("node", "list", "n[0-1]")
    assert full.requests[-1] == ("GET /v1/nodes", {"range": "n[0-1]"}, None)
    full.snapshots = [[]]
    full.answers["GET /v1/status"] = (200, {"nodes": {"total": 0}})
    assert "no nodes" in run("node", "list").err
    full.answers["GET /v1/status"] = (200, {"nodes": {"total": 7}})
    said = run("node", "list", "--where", "status=held").err
    assert said == "of 7 nodes, none is so: status=held\n"
    assert "has 'x7' in it" in run("node", "list", "--search", "x7").err


def test_a_list_fits_a_terminal_and_says_what_matters(run: Run, full: CannedApi) -> None:
    unknown = dict.fromkeys(("bmc-health", "disk", "hardware", "thermal"), "UNKNOWN")
    state = {**node_view()["state"], **unknown}
    full.snapshots = [
        [
            node_view("r0000n00", state=state, ip="10.111.222.100"),
            node_view(
                "r0000n01",
                state={**state, "busy": "BUSY", "thermal": "HIGH"},
                stopped=["frozen", "maintenance"],
                status="maintenance",
                status_text="in maintenance by ann: new DIMM",
            ),
        ]
    ]
    lines = run("node", "list").out.splitlines()
    assert "UNKNOWN" not in "".join(lines) and max(map(len, lines[:2])) <= 100
    assert lines[2].endswith("frozen, busy BUSY, thermal HIGH, in maintenance by ann: new DIMM")


def test_a_list_for_programs(run: Run, full: CannedApi) -> None:
    views = [
        node_view("n0", labels={"rack": "R7"}, serial="SN-1", boots={"runs": "b1", "agent": "b2"}),
        node_view("n1", labels={}, serial="SN-2", boots={}),
    ]
    full.snapshots = [views]
    assert run("node", "list", "--fold").out == "n[0-1]\n"
    assert run("node", "list", "--no-header", "--columns", "name,rack,images").out.splitlines() == [
        "n0  R7  debian",
        "n1  -   debian",
    ]
    columns = "name,boot-set,agent"
    found = run("node", "list", "--no-header", "--columns", columns, "--search", "sn-1").out
    assert found == "n0  b1  b2\n"
    assert run("node", "list", "--search", "r7", "--fold").out == "n0\n"


def test_a_roll_under_way_shows_both_images(run: Run, full: CannedApi) -> None:
    def images(*pair: str) -> dict[str, Any]:
        running, wanted = (
            [dict(zip(("name", "digest"), text.split("@"), strict=True))] for text in pair
        )
        return {"running": running, "wanted": wanted}

    full.snapshots = [
        [
            node_view("n0", images=images("debian@blake2b:aa", "alpine@blake2b:bb")),
            node_view("n1", images=images("debian@blake2b:aa", "debian@blake2b:bb")),
        ]
    ]
    lines = run("node", "list").out.splitlines()
    assert "debian -> alpine" in lines[1]
    assert "debian@aa -> debian@bb" in lines[2]


def test_node_show_has_facts_and_the_last_events(run: Run, full: CannedApi) -> None:
    out = run("node", "show", "n0", "--history", "2").out
    assert "bmc        ipmi 10.1.0.1" in out
    assert "event 30" in out and "event 29" in out and "event 28" not in out


def test_node_show_with_json_has_as_many_events_as_asked_for(run: Run, full: CannedApi) -> None:
    def shown(*options: str) -> list[str]:
        return [
            e["text"]
            for e in json.loads(run("node", "show", "n0", "--json", *options).out)["history"]
        ]

    assert shown("--history", "2") == ["event 29", "event 30"]
    assert shown("--history", "0") == []
    assert len(shown()) == 20


def test_the_columns_of_node_list_are_the_heads_variables(run: Run, full: CannedApi) -> None:
    full.answers["GET /v1/nodes"] = (
        200,
        {"variables": ["power", "gpu"], "nodes": [node_view(state={"power": "ON", "gpu": "X"})]},
    )
    lines = run("node", "list").out.splitlines()
    assert lines[0].split()[:5] == ["NAME", "STATUS", "POWER", "GPU", "IMAGES"]
    assert lines[1].split()[:5] == ["n0", "converged", "ON", "X", "debian"]


def test_control_characters_from_a_node_never_reach_the_terminal(run: Run, full: CannedApi) -> None:
    full.answers["GET /v1/events"] = (
        200,
        {"events": [event(1, "a\x1b]0;owned\x07b\nforged line [red]x[/red]")]},
    )
    out = run("events").out
    assert "\x1b" not in out and "\x07" not in out
    assert len(out.splitlines()) == 2
    assert "[red]x[/red]" in out


def test_running_nodes_are_not_stopped_unasked(run: Run, full: CannedApi) -> None:
    for command in (
        ["power", "off", "n[0-1]"],
        ["power", "cycle", "n[0-1]"],
        ["node", "off", "n[0-1]"],
    ):
        assert run(*command, answer="n").code == 1
        assert run(*command).code == 2
        assert not full.asked("POST /v1/power") and not full.asked("POST /v1/nodes/state")
    asked: list[str] = []
    assert run("power", "cycle", "n[0-1]", "--force", answer="y", asked=asked).code == 0
    assert asked == ["Power cycle n[0-1]: 2 nodes, 1 of them running, none BUSY. Go on?"]
    assert full.asked("POST /v1/power") == [{"range": "n[0-1]", "action": "cycle", "force": True}]


def test_nodes_that_run_nothing_are_switched_off_without_a_question(
    run: Run, full: CannedApi
) -> None:
    full.snapshots = [[working("n1")]]
    assert run("power", "off", "n1").code == 0
    assert full.asked("POST /v1/power") == [{"range": "n1", "action": "off", "force": False}]


def test_a_power_request_that_is_not_accepted_is_exit_4(run: Run, full: CannedApi) -> None:
    full.answers["POST /v1/power"] = (
        200,
        {"nodes": [{"node": "n0", "accepted": False, "why": "BUSY"}]},
    )
    result = run("power", "off", "n0", "--yes")
    assert result.code == 4
    assert "BUSY" in result.out


def test_a_bmc_that_does_not_answer_is_exit_1_and_shown(run: Run, full: CannedApi) -> None:
    full.answers["GET /v1/power"] = (
        200,
        {
            "power": [
                {
                    "node": "n0",
                    "power": "UNKNOWN",
                    "driver": "ipmi",
                    "address": "10.1.0.1",
                    "error": "cannot reach the BMC: no answer",
                }
            ]
        },
    )
    result = run("power", "status", "n0")
    assert result.code == 1
    assert "no answer" in result.out
    assert full.requests[-1] == ("GET /v1/power", {"range": "n0"}, None)


def test_power_status_without_a_range_asks_for_all(run: Run, full: CannedApi) -> None:
    run("power", "status")
    assert full.requests[-1] == ("GET /v1/power", {"range": "@all"}, None)


def test_image_add_sends_an_absolute_path_and_the_container(
    run: Run, full: CannedApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    options = [
        "--no-systemd",
        "--command",
        "/bin/sh -c 'sleep 1'",
        "--env",
        "A=b=c",
        "--restart",
        "never",
    ]
    result = run("image", "add", "app", "a.sqsh", *options)
    assert result.code == 0
    assert full.asked("POST /v1/images") == [
        {
            "path": str(tmp_path / "a.sqsh"),
            "name": "app",
            "systemd": False,
            "command": ["/bin/sh", "-c", "sleep 1"],
            "env": {"A": "b=c"},
            "workdir": "/",
            "stop_timeout_s": 10.0,
            "restart": "never",
        }
    ]


@pytest.mark.parametrize(
    "option", [["--env", "A"], ["--env", "=x"], ["--command", "'"], ["--command", ""]]
)
def test_image_add_refuses_bad_options(run: Run, full: CannedApi, option: list[str]) -> None:
    assert run("image", "add", "app", "a.sqsh", *option).code == 2
    assert not full.requests


def test_image_add_shows_what_of_its_nodes_an_image_has(run: Run, full: CannedApi) -> None:
    image = {"name": "app", "digest": "blake2b:01", "size": 1, "privileges": ["hooks"]}
    full.answers["POST /v1/images"] = (200, {"image": image})
    lines = run("image", "add", "app", "a.sqsh").out.splitlines()
    assert lines[1].strip() == "note: `hooks` gives it programs that run as root of the node"


def test_image_list_is_readable(run: Run, full: CannedApi) -> None:
    line = run("image", "list").out.splitlines()[1]
    assert line.split()[:4] == ["debian", "0123456789ab", "123", "MB"]
    assert line.endswith("n[0-1]")


def test_a_roll_is_followed_until_the_digest_is_the_wanted_one(run: Run, full: CannedApi) -> None:
    new = {"name": "debian", "digest": "blake2b:bbbb"}
    old = {"name": "debian", "digest": "blake2b:aaaa"}
    full.snapshots = [
        [
            node_view(images={"wanted": [new], "running": [old]})
        ],  # asked for once, to see who is wanted up
        [node_view(images={"wanted": [new], "running": [old]})],
        [node_view(images={"wanted": [new], "running": []}, status="working")],
        [node_view(images={"wanted": [new], "running": [new]})],
    ]
    result = run("image", "roll", "n0", "debian", "--json")
    document = json.loads(result.out)
    assert (result.code, document["done"], document["nodes"][0]["done"]) == (0, True, True)
    assert document["nodes"][0]["seconds"] >= 0
    assert sum(1 for name, _, _ in full.requests if name == "GET /v1/nodes") == 4
    (asked,) = full.asked("POST /v1/images/roll")
    assert isinstance(asked.pop("by"), str)
    assert asked == {"range": "n0", "image": "debian", "replace": None, "at_once": False}


def test_a_roll_that_fails_is_exit_1(run: Run, full: CannedApi) -> None:
    broken = {"wanted": [{"name": "bad", "digest": "x"}], "running": []}
    full.snapshots = [
        [
            node_view(
                images=broken,
                status="quarantined",
                status_text="the node has given up on its images",
            )
        ]
    ]
    result = run("image", "roll", "n0", "bad")
    assert result.code == 1
    assert "given up" in result.out and "layercake node explain n0" in result.err


def test_a_roll_does_not_wait_for_nodes_that_are_wanted_off(run: Run, full: CannedApi) -> None:
    full.snapshots = [[node_view(wanted="off", goal={"power": "OFF"}, state={"power": "OFF"})]]
    result = run("image", "roll", "n0", "debian")
    assert result.code == 0
    assert "n0: wanted off" in result.err


def test_a_node_that_is_passed_over_is_not_said_to_run_the_image_later(
    run: Run, full: CannedApi
) -> None:
    full.snapshots = [[node_view(wanted="off", goal={"power": "OFF"}, state={"power": "OFF"})]]
    passed_over = [{"node": "n0", "why": "in maintenance by ann"}]
    full.answers["POST /v1/images/roll"] = (200, {"nodes": [], "passed_over": passed_over})
    result = run("image", "roll", "n0", "debian")
    assert "n0: passed over" in result.err and "wanted off" not in result.err


def test_graph_goes_to_a_file(run: Run, full: CannedApi, tmp_path: Path) -> None:
    target = tmp_path / "g.dot"
    assert run("graph", "--output", str(target)).code == 0
    assert target.read_text() == "digraph { a -> b }\n"
    assert run("graph", "--output", str(tmp_path / "no" / "g.dot")).code == 2


def test_events_pass_the_filters_on(run: Run, full: CannedApi) -> None:
    run("events", "--node", "n0", "--kind", "boot", "--since", "5", "--limit", "7")
    assert full.requests[-1] == (
        "GET /v1/events",
        {"node": "n0", "kind": "boot", "since": "5", "limit": "7"},
        None,
    )


def test_profiles_are_numbers_and_names_for_programs(run: Run, full: CannedApi) -> None:
    one = {
        "kernel": "6.1",
        "size": 48_000_000,
        "profile": "server",
        "boot": ["n1"],
        "default": False,
        "built": 1.0,
    }
    full.answers["GET /v1/boot"] = (
        200,
        {
            "sets": [
                {**one, "name": "new", "profile_default": False, "boot": ["n0"]},
                {**one, "name": "old", "profile_default": True},
                {**one, "name": "bare", "profile": None, "profile_default": False},
            ]
        },
    )
    assert json.loads(run("profile", "list", "--json").out)["profiles"] == [
        {
            "name": "server",
            "kernel": "6.1",
            "set": "old",
            "sets": 2,
            "size": 48_000_000,
            "nodes": ["n1"],
            "nodes_of_others": ["n0"],
        }
    ]
    assert run("profile", "list").out.splitlines()[1].split() == [
        "server",
        "6.1",
        "old",
        "48.0",
        "MB",
        "n1",
        "1",
        "n0",
    ]


def test_the_end_of_a_maintenance_names_who_stays_off(head: CannedApi, run: Run) -> None:
    head.answers["POST /v1/maintenance/end"] = (200, {"nodes": ["n0", "n1"], "off": ["n1"]})
    found = run("node", "maintenance", "end", "n[0-1]")
    assert found.out.splitlines() == [
        "back from maintenance: n[0-1]",
        "still wanted off: n1; `layercake power on n1` boots it",
    ]


@pytest.mark.parametrize("status", ["converged", "maintenance"])
def test_a_node_in_maintenance_is_not_waited_for(status: str) -> None:
    assert converged({"status": status, "state": {"run": "SYNC"}, "goal": {"run": "SYNC"}})


@pytest.mark.parametrize(
    ("words", "path", "said"),
    [
        (("node", "off", "n[0-1]", "--yes"), "POST /v1/nodes/state", "n[0-1]: wanted off; stays"),
        (("power", "off", "n[0-1]", "--yes"), "POST /v1/power", "n[0-1]: stays off until"),
        (("node", "up", "n[0-1]"), "POST /v1/nodes/state", "n[0-1]: wanted up; switched on again"),
        (("power", "on", "n[0-1]"), "POST /v1/power", "n[0-1]: switched on again"),
    ],
    ids=["node off", "power off", "node up", "power on"],
)
def test_what_stays_so_is_said_with_the_way_back(
    run: Run, full: CannedApi, words: tuple[str, ...], path: str, said: str
) -> None:
    rows = [{"node": n, "accepted": True, "why": ""} for n in ("n0", "n1")]
    full.answers[path] = (200, {"nodes": rows if "power" in path else ["n0", "n1"]})
    result = run(*words)
    back = "power on" if "off" in words else "power off"
    assert said in result.out and f"`layercake {back} n[0-1]`" in result.out


def test_nodes_whose_order_was_accepted_alike_are_one_row(run: Run, full: CannedApi) -> None:
    answers = [{"node": f"n{n}", "accepted": n != 3, "why": "frozen" * (n == 3)} for n in range(9)]
    full.answers["POST /v1/power"] = (200, {"nodes": answers})
    rows = [line.split() for line in run("power", "on", "n[0-8]").out.splitlines()[1:]]
    assert rows[:2] == [["n[0-2,4-8]", "yes"], ["n3", "no", "frozen"]]


def test_maintenances_that_are_alike_are_one_row(run: Run, full: CannedApi) -> None:
    word = {"since": 1.0, "until": None, "by": "ann", "ended": None, "reason": "a switch"}
    answers = [{"node": f"n{number}", **word} for number in range(9)]
    full.answers["GET /v1/maintenance"] = (200, {"maintenances": answers})
    assert [line.split()[0] for line in run("node", "maintenance", "list").out.splitlines()] == [
        "NODE",
        "n[0-8]",
    ]
    full.answers["GET /v1/maintenance"] = (200, {"maintenances": []})
    assert "no maintenance" in run("node", "maintenance", "list").out
