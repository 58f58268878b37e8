"""The key `disks`: layers, what a node is told, and what is a mistake, with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from layercake.head.modules import standard
from layercake.inventory.problems import InventoryErrors
from layercake.inventory.schema import Node
from layercake.kraken.errors import OperationFailed
from minos.agent.disks.layout import Layout, parse, read_mark
from tests.support.inventory import load

SITE = """\
groups:
  compute:
    disks:
      scratch:
        match: {transport: nvme, min: 400G, model: "ACME*", rotational: false}
        count: 2
        raid: 0
        encrypt: boot
        volumes:
          scratch: {type: xfs, mount: /scratch, mode: "1777", options: noatime}
          swap: {size: 16G, type: swap}
  bare: {disks: {scratch: null}}
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.99.0.10, groups: [compute]}
  n1:
    mac: "52:54:00:00:00:11"
    ip: 10.99.0.11
    groups: [compute, bare]
    disks:
      data: {match: {serial: [A1, B2]}, count: all, raid: 1, kept: true, encrypt: kept, wipe: [A1],
             volumes: {data: {mount: /data, keeps: true}}}
  n2: {mac: "52:54:00:00:00:12", ip: 10.99.0.12}
"""


def layouts(node: Node) -> tuple[Layout, ...]:
    return parse(json.loads(json.dumps(standard().told_to(node).get("disks", []))))


def test_a_node_is_told_its_layouts() -> None:
    nodes = load(SITE).nodes
    (scratch,) = layouts(nodes["n0"])
    assert (scratch.name, scratch.count, scratch.raid, scratch.encrypt, scratch.kept) == (
        "scratch",
        2,
        "0",
        "boot",
        False,
    )
    assert scratch.match == {
        "transport": "nvme",
        "min": 400 << 30,
        "model": "ACME*",
        "rotational": False,
    }
    assert [(v.name, v.size, v.type, v.mount, v.mode) for v in scratch.volumes] == [
        ("scratch", 0, "xfs", "/scratch", "1777"),
        ("swap", 16 << 30, "swap", "", ""),
    ]
    (data,) = layouts(nodes["n1"])
    assert (data.name, data.count, data.raid, data.encrypt, data.wipe) == (
        "data",
        0,
        "1",
        "kept",
        ("A1",),
    )
    assert "disks" not in standard().told_to(nodes["n2"])
    for node in nodes.values():
        assert Node.from_record(node.to_record(), standard().parts) == node


def test_a_mark_names_node_layout_and_all_that_is_made() -> None:
    (scratch,) = layouts(load(SITE).nodes["n0"])
    mark = scratch.mark("1a2b3c4d-0000-0000-0000-000000000000")
    assert len(mark) <= 36, "a name in a GPT has no more characters"
    read = read_mark(mark)
    assert read is not None and (read.node, read.stage, read.made, read.layout) == (
        "1a2b3c4d",
        "s",
        scratch.fingerprint,
        "scratch",
    )
    (other,) = layouts(
        load(SITE.replace("mount: /scratch,", "mount: /other,").replace("400G", "300G")).nodes["n0"]
    )
    assert other.fingerprint == scratch.fingerprint, (
        "where it is mounted, and which disks match, is not written to the disks"
    )
    (larger,) = layouts(load(SITE.replace("16G", "17G")).nodes["n0"])
    assert larger.fingerprint != scratch.fingerprint
    assert read_mark("Windows") is None and read_mark("lc:1a2b3c4d:s:00000000:x\n") is None


def test_only_nodes_with_disks_have_the_steps() -> None:
    nodes, table = load(SITE).nodes, standard()
    with_disks, without = table.planner_for(nodes["n0"]), table.planner_for(nodes["n2"])
    assert "disk-prepare" in with_disks and "disk-prepare" not in without
    goal = with_disks.layout.goal({"image": "ACTIVE"})
    up = {"power": "ON", "boot": "INIT", "run": "SYNC", "busy": "FREE", "image": "IDLE"}
    state = with_disks.layout.pack({**up, "disk": "FOREIGN"})
    assert [m.name for m in with_disks.chain(state, goal) or ()] == [
        "disk-wait",
        "disk-prepare",
        "image-start",
    ]
    plain = without.layout.pack(up)
    assert [m.name for m in without.chain(plain, goal) or ()] == ["image-start"]
    off = with_disks.layout.goal(table.goal_values("off", empty=False))
    assert [m.name for m in with_disks.chain(state, off) or ()] == ["detach", "power-off"], (
        "nobody waits for a disk to switch off"
    )
    ready = with_disks.layout.pack({**up, "disk": "READY", "image": "ACTIVE"})
    assert [m.name for m in with_disks.chain(ready, off) or ()] == [
        "image-stop",
        "disk-close",
        "detach",
        "power-off",
    ]


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("{volumes: {a: {mount: /a}}}", "match is missing"),
        ("{match: {min: 400G}, volumes: {a: {mount: /a, colour: null}}}", "colour"),
        ("{match: {min: 400}, volumes: {a: {mount: /a}}}", "expected a size"),
        ("{match: {size: 4G}, volumes: {a: {mount: /a}}}", "unknown key 'size'"),
        ("{match: {transport: pata}, volumes: {a: {mount: /a}}}", "there is no transport 'pata'"),
        ('{match: {serial: [""]}, volumes: {a: {mount: /a}}}', "names no disk"),
        ("{match: {min: 4G, max: 2G}, volumes: {a: {mount: /a}}}", "min is above max"),
        ("{match: {min: 4G}, raid: 5, volumes: {a: {mount: /a}}}", "raid"),
        ("{match: {min: 4G}, raid: 1, volumes: {a: {mount: /a}}}", "RAID 1 has several disks"),
        ("{match: {min: 4G}, count: 0, volumes: {a: {mount: /a}}}", "expected a number of disks"),
        (
            "{match: {min: 4G}, encrypt: kept, volumes: {a: {mount: /a}}}",
            "a key that is kept goes with",
        ),
        (
            "{match: {min: 4G}, kept: true, encrypt: boot, volumes: {a: {mount: /a}}}",
            "a key that is kept goes with",
        ),
        (
            "{match: {min: 4G}, volumes: {a: {mount: /a, keeps: true}}}",
            "what containers keep needs",
        ),
        ("{match: {min: 4G}, volumes: {a: {}}}", "volume a: it has no mount"),
        ("{match: {min: 4G}, volumes: {a: {mount: /usr/local}}}", "minOS's own"),
        ("{match: {min: 4G}, volumes: {a: {mount: /a/../usr}}}", "no place to mount at"),
        ("{match: {min: 4G}, volumes: {a: {mount: a}}}", "no place to mount at"),
        ("{match: {min: 4G}, volumes: {a: {mount: /}}}", "no place to mount at"),
        (
            "{match: {min: 4G}, volumes: {a: {mount: /a, type: btrfs}}}",
            "expected ext4, xfs or swap",
        ),
        ('{match: {min: 4G}, volumes: {a: {mount: /a, options: "x y"}}}', "is no mount options"),
        ("{match: {min: 4G}, volumes: {a: {mount: /a, type: swap}}}", "swap is mounted nowhere"),
        (
            "{match: {min: 4G}, volumes: {a: {mount: /a}, b: {mount: /b}}}",
            "two volumes have no size",
        ),
        (
            "{match: {min: 4G}, volumes: {a: {mount: /a, size: 1G}, b: {mount: /a/b}}}",
            "lies with /a",
        ),
        ("{match: {min: 4G}, volumes: {A: {mount: /a}}}", "cannot be a volume's name"),
        ("{match: {min: 4G}, wipe: [true], volumes: {a: {mount: /a}}}", "names no disk"),
    ],
)
def test_a_mistake_is_told_with_its_line(layout: str, said: str) -> None:
    text = (
        "nodes:\n  n0:\n    mac: 52:54:00:00:00:10\n    ip: 10.99.0.10\n    disks:\n      "
        f"one: {layout}\n"
    )
    with pytest.raises(InventoryErrors) as caught:
        load(text)
    problem = caught.value.problems[0]
    assert said in problem.message and problem.line in (5, 6)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../x"},
        {"raid": "5"},
        {"volumes": [{}]},
        {"count": "many"},
        {"encrypt": "no"},
        {
            "volumes": [
                {
                    "name": "a",
                    "size": 0,
                    "type": "ext4",
                    "mount": "x",
                    "options": "",
                    "label": "",
                    "mode": "",
                    "keeps": False,
                }
            ]
        },
    ],
)
def test_a_node_takes_nothing_that_is_not_as_agreed(change: dict[str, Any]) -> None:
    good = {
        "name": "a",
        "match": {},
        "count": 1,
        "raid": "",
        "encrypt": "",
        "kept": False,
        "wipe": [],
        "volumes": [],
    }
    assert parse([good])[0].name == "a" and parse(None) == ()
    with pytest.raises(OperationFailed, match="not as agreed"):
        parse([{**good, **change}])
