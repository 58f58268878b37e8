"""image roll --save: the names of images change in the inventory file, in the right places, and
nothing else does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layercake.client.saving.images import Rolled, edit_text, save
from layercake.inventory.ranges import names_of
from layercake.kraken.errors import InputError
from tests.cli.canned_api import CannedApi, node_view
from tests.support.inventory import load

Run = Callable[..., Any]

RACK = """\
# The rack in room 2.
defaults: {firmware: uefi, images: [base]}   # what all run
groups:
  compute:
    images:
      - 'debian-1'   # with the new kernel
  login: {images: ["debian-1"]}
nodes:
  n[0-3]: {groups: [compute], mac: "52:54:00:00:00:10+", ip: 10.1.0.10+}
  n4: {groups: [compute, login], mac: "52:54:00:00:00:20", ip: 10.1.0.20}
  n5: {groups: [login], mac: "52:54:00:00:00:21", ip: 10.1.0.21, images: [ debian-1 ]}   # by itself
  n[6-7]: {mac: "52:54:00:00:00:30+", ip: 10.1.0.30+, images: [web:1, db]}
  n8: {mac: "52:54:00:00:00:40", ip: 10.1.0.40}
  n9: {mac: "52:54:00:00:00:41", ip: 10.1.0.41}
"""


def images(text: str) -> dict[str, tuple[str, ...]]:
    """What the head reads of it."""
    return {name: node.images for name, node in load(text, "rack.yaml").nodes.items()}


@pytest.mark.parametrize(
    ("nodes", "image", "replace", "lines"),
    [
        ("n[0-3]", "debian-2", None, {6: "      - 'debian-2'   # with the new kernel"}),
        ("n4", "debian-2", None, {7: '  login: {images: ["debian-2"]}'}),
        (
            "n5",
            "debian:2",
            None,
            {11: RACK.splitlines()[10].replace("[ debian-1 ]", "[ debian:2 ]")},
        ),
        (
            "n[0-5]",
            "debian-2",
            None,
            {
                6: "      - 'debian-2'   # with the new kernel",
                7: '  login: {images: ["debian-2"]}',
                11: RACK.splitlines()[10].replace("debian-1", "debian-2"),
            },
        ),
        ("n[6-7]", "web:2", "web:1", {12: RACK.splitlines()[11].replace("web:1", "web:2")}),
        ("n[8-9]", "12", None, {2: 'defaults: {firmware: uefi, images: ["12"]}   # what all run'}),
        ("n[0-3,8-9]", "base", None, {6: "      - 'base'   # with the new kernel"}),
    ],
)
def test_only_the_names_change_where_the_nodes_have_them_from(
    nodes: str, image: str, replace: str | None, lines: dict[int, str]
) -> None:
    before, rolled = images(RACK), names_of(nodes)
    text, changed = edit_text(RACK, "rack.yaml", Rolled(rolled, image, replace))
    expected = [lines.get(number, line) for number, line in enumerate(RACK.splitlines(), 1)]
    assert text.splitlines() == expected and changed == sorted(lines)
    wanted = dict.fromkeys(rolled, (image,) if replace is None else (image, "db"))
    assert images(text) == {**before, **wanted}


@pytest.mark.parametrize(
    ("nodes", "replace", "message", "hint"),
    [
        (
            "n[0-1]",
            None,
            r"of n\[0-1\] stand in group compute \(line 6\), and those of n\[2-3\] too",
            "under nodes for n[0-1]",
        ),
        (
            "n8",
            None,
            r"stand in defaults \(line 2\), and those of n9 too",
            "write images: [two] under nodes for n8",
        ),
        ("n[6-7]", None, "which names 2 images and not one", "write images: [two] there"),
        ("n[6-7]", "cache", "which does not name cache", "write two there"),
        ("n[8-10]", None, "n10 is not in it", "was applied"),
    ],
)
def test_what_cannot_be_said_is_refused_with_what_to_write(
    nodes: str, replace: str | None, message: str, hint: str
) -> None:
    with pytest.raises(InputError, match=f"cannot save to rack.yaml: .*{message}") as caught:
        edit_text(RACK, "rack.yaml", Rolled(names_of(nodes), "two", replace))
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: {n0: {}}", "n0 has no images there"),
        ("nodes: {n0: {images: []}}", "names 0 images"),
        ("nodes: {n0: {images: [&x one]}}", "writes one in a way of its own"),
        ('nodes: {n0: {images: ["\\x6fne"]}}', "in a way of its own"),
        ("nodes: {n0: {images: &x [one]}, n1: {images: *x}}", "and those of n1 too"),
        ("defaults: {console: &x one}\nnodes: {n0: {images: [*x]}}", "cannot save"),
        ("nodes: {n0: {images: [one], images: [two]}}", "mistake"),
    ],
)
def test_yaml_that_shares_or_hides_names_is_left_alone(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        edit_text(text, "rack.yaml", Rolled(["n0"], "other"))


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_the_file_keeps_its_mode_its_line_ends_and_its_place(tmp_path: Path, ending: str) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_bytes(f"# x{ending}nodes: {{n0: {{images: [one]}}}}{ending}".encode())
    real.chmod(0o640)
    link.symlink_to(real)
    assert save(link, Rolled(["n0"], "two")) == [2]
    assert real.read_bytes().decode() == f"# x{ending}nodes: {{n0: {{images: [two]}}}}{ending}"
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    assert save(link, Rolled(["n0"], "two")) == [], "it says so already"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.yaml", "real.yaml"]


@pytest.fixture
def rack(head: CannedApi, tmp_path: Path) -> Path:
    new = {"name": "debian-2", "digest": "blake2b:bbbb"}
    head.snapshots = [
        [node_view(f"n{i}", images={"running": [new], "wanted": [new]}) for i in range(4)]
    ]
    head.answers["POST /v1/images/roll"] = (
        200,
        {"nodes": [f"n{i}" for i in range(4)], "rolls": []},
    )
    head.answers["POST /v1/inventory/plan"] = (200, {"changes": [], "networks": []})
    path = tmp_path / "rack.yaml"
    path.write_text(RACK)
    return path


def test_a_file_that_says_something_else_than_what_is_in_force_is_not_written(
    run: Run, head: CannedApi, rack: Path
) -> None:
    change = {"node": "n7", "action": "change", "fields": {}}
    head.answers["POST /v1/inventory/plan"] = (200, {"changes": [change], "networks": []})
    for words in (
        ("image", "roll", "n[0-3]", "debian-2", "--save", str(rack)),
        ("node", "set", "n0", "kernel_args=debug", "--save", str(rack)),
    ):
        found = run(*words)
        assert found.code == 2 and "differs from what is in force: n7" in found.err
    assert not head.asked("POST /v1/images/roll") and not head.asked("PATCH /v1/nodes/n0")
    assert rack.read_text() == RACK


def test_a_roll_that_went_well_is_saved(run: Run, head: CannedApi, rack: Path) -> None:
    found = run("image", "roll", "n[0-3]", "debian-2", "--save", str(rack))
    assert found.code == 0 and f"{rack}: debian-2 stands in line 6 now" in found.out
    assert images(rack.read_text())["n0"] == ("debian-2",)
    rack.write_text(RACK)
    document = json.loads(
        run("image", "roll", "n[0-3]", "debian-2", "--save", str(rack), "--no-wait", "--json").out
    )
    assert document["saved"] == {"file": str(rack), "lines": [6]}


def test_a_roll_that_could_not_be_saved_is_not_begun(run: Run, head: CannedApi, rack: Path) -> None:
    head.snapshots = [[node_view("n0")]]
    found = run("image", "roll", "n0", "debian-2", "--save", str(rack))
    assert found.code == 2 and "and those of n[1-3] too" in found.err
    assert not head.asked("POST /v1/images/roll")
    assert run("image", "roll", "n0", "debian-2", "--save", str(rack) + ".none").code == 2


def test_a_roll_that_failed_is_not_saved(run: Run, head: CannedApi, rack: Path) -> None:
    names = [f"n{i}" for i in range(4)]
    head.answers["POST /v1/images/roll"] = (
        200,
        {"nodes": names, "rolls": [{"id": 4, "nodes": names}]},
    )
    view = {
        "id": 4,
        "state": "failed",
        "image": "debian-2",
        "stages": ["all"],
        "stage": "all",
        "batch": 1,
        "reason": "n0 lost",
        "counts": {"failed": 1},
        "nodes_total": 4,
        "nodes": [],
    }
    head.answers["GET /v1/rolls/4"] = (200, {"roll": view})
    found = run("image", "roll", "n[0-3]", "debian-2", "--save", str(rack))
    assert found.code == 1 and f"{rack} is as it was" in found.err
    assert rack.read_text() == RACK
