"""The diff between two inventories."""

from __future__ import annotations

import json

from layercake.inventory.changes import Action, Change, describe
from layercake.inventory.entry import diff
from layercake.inventory.schema import Node
from tests.support.inventory import load

BASE = """\
groups: {g: {bmc: {driver: ipmi, username: admin, password: {file: /a}}}}
nodes:
  n0: {groups: [g], mac: "52:54:00:00:00:01", ip: 10.0.0.1, bmc: {address: 10.1.0.1}}
  n1: {groups: [g], mac: "52:54:00:00:00:02", ip: 10.0.0.2, bmc: {address: 10.1.0.2}}
"""


def nodes(text: str) -> dict[str, Node]:
    return dict(load(text).nodes)


def test_nothing_changed_is_no_change() -> None:
    assert list(diff(nodes(BASE), nodes(BASE))) == []
    assert describe([]) == "no changes"


def test_changed_fields_are_named_with_old_and_new() -> None:
    text = BASE.replace("10.0.0.2", "10.0.0.9").replace("file: /a", "env: PW")
    after = nodes(text.replace("ip: 10.0.0.1,", "ip: 10.0.0.1, images: [deb],"))
    changes = list(diff(nodes(BASE), after))
    assert changes == [
        Change(
            "n0",
            Action.CHANGE,
            {"images": ([], ["deb"]), "bmc.password": ({"file": "/a"}, {"env": "PW"})},
        ),
        Change(
            "n1",
            Action.CHANGE,
            {"ip": ("10.0.0.2", "10.0.0.9"), "bmc.password": ({"file": "/a"}, {"env": "PW"})},
        ),
    ]
    assert describe(changes).splitlines()[:3] == [
        "~ n0",
        "    images: (none) -> deb",
        "    bmc.password: file /a -> env PW",
    ]


def test_a_bmc_that_goes_is_a_change_of_its_fields() -> None:
    after = nodes(BASE.replace("bmc: {address: 10.1.0.1}", "bmc: null"))
    (change,) = diff(nodes(BASE), after)
    assert change.fields["bmc.address"] == ("10.1.0.1", None)


def test_added_and_removed_nodes() -> None:
    before, after = nodes(BASE), nodes(BASE)
    del before["n1"], after["n0"]
    changes = list(diff(before, after))
    assert [(c.node, c.action) for c in changes] == [("n0", Action.REMOVE), ("n1", Action.ADD)]
    assert changes[0].fields["ip"] == ("10.0.0.1", None)
    assert changes[1].fields["ip"] == (None, "10.0.0.2")
    assert "images" not in changes[1].fields
    assert describe(changes).startswith("- n0\n+ n1\n")


def test_changes_go_to_json_and_back() -> None:
    for change in diff({}, nodes(BASE)):
        assert Change.from_record(json.loads(json.dumps(change.to_record()))) == change
