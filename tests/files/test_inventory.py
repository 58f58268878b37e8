"""The key `files`: layers, places, and what is a mistake, with its line."""

from __future__ import annotations

import pytest

from layercake.features.files.inventory import Files, place_of
from layercake.head.modules import standard
from layercake.inventory.problems import InventoryErrors, Problem
from layercake.inventory.schema import Node
from layercake.moduleapi.fields import Mistake
from tests.support.inventory import load

SITE = """\
defaults:
  files:
    /etc/motd: {content: "hello\\n"}
    minos:/etc/sysctl.d/90.conf: {content: "vm.swappiness = 1\\n"}
groups:
  compute:
    files: {/etc/motd: {source: motd.j2, on_change: write}, "app:1.0,web:/etc/x": {secret: munge, mode: "0400", owner: 998}}
  quiet: {files: {/etc/motd: null}}
  bare: {files: null}
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.99.0.10}
  n1: {mac: "52:54:00:00:00:11", ip: 10.99.0.11, groups: [compute]}
  n2: {mac: "52:54:00:00:00:12", ip: 10.99.0.12, groups: [compute, quiet], files: {/: {tree: base}}}
  n3: {mac: "52:54:00:00:00:13", ip: 10.99.0.13, groups: [bare]}
"""


def files(node: Node) -> Files:
    found = node.parts["files"]
    assert isinstance(found, Files)
    return found


def mistakes(what: str) -> list[Problem]:
    text = (
        f"nodes:\n  n0:\n    mac: 52:54:00:00:00:10\n    ip: 10.99.0.10\n    files:\n      {what}\n"
    )
    with pytest.raises(InventoryErrors) as caught:
        load(text)
    return list(caught.value.problems)


def test_a_later_layer_takes_the_place_of_the_whole_entry() -> None:
    nodes = load(SITE).nodes
    assert files(nodes["n0"]).entries["/etc/motd"].content == "hello\n"
    motd = files(nodes["n1"]).entries["/etc/motd"]
    assert (motd.content, motd.source, motd.on_change) == (None, "motd.j2", "write"), (
        "nothing of the earlier one is left"
    )
    assert set(files(nodes["n1"]).entries) == {
        "/etc/motd",
        "minos:/etc/sysctl.d/90.conf",
        "app:1.0,web:/etc/x",
    }
    assert (
        "/etc/motd" not in files(nodes["n2"]).entries
        and files(nodes["n2"]).entries["/"].tree == "base"
    )
    assert "files" not in nodes["n3"].parts


def test_records_come_back_as_they_were() -> None:
    for node in load(SITE).nodes.values():
        assert Node.from_record(node.to_record(), standard().parts) == node


def test_a_key_names_images_and_a_path() -> None:
    assert place_of("/etc/motd") == (("*",), "/etc/motd")
    assert place_of("minos:/etc/motd") == (("minos",), "/etc/motd")
    assert place_of("app:1.0,web:/etc/x") == (("app:1.0", "web"), "/etc/x")


@pytest.mark.parametrize(
    "key",
    [
        "etc/motd",
        "/etc/../passwd",
        "/etc//x",
        "/etc/x/",
        "/proc/sys/x",
        "/dev/null",
        "/etc/a\nb",
        "a b:/x",
        "../x:/y",
        "/" + "x" * 2000,
    ],
)
def test_no_other_place_is_one(key: str) -> None:
    with pytest.raises(Mistake):
        place_of(key)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("/etc/motd: {}", "does not say what is in it"),
        ("/etc/motd: {content: a, source: b}", "says source and content"),
        ("/etc/motd: {source: ../../etc/shadow}", "is no path in the directory of files"),
        ("/etc/motd: {source: /etc/shadow}", "is no path in the directory of files"),
        ("/etc/motd: {content: a, mode: 0644}", "expected a mode"),
        ("/etc/motd: {content: a, mode: '9999'}", "expected a mode"),
        ("/etc/motd: {content: a, owner: 'a b'}", "is no user or group"),
        ("/etc/motd: {secret: ../x}", "is no secret's name"),
        ("/etc/motd: {content: a, on_change: 'reload a;b'}", "expected what to do"),
        ("/etc/motd: {content: a, on_change: signal KILL}", "expected what to do"),
        ("minos:/etc/motd: {content: a, on_change: restart}", "nothing can be reloaded in minOS"),
        ("/etc/motd: {secret: a, template: true}", "template means nothing with secret"),
        ("/: {content: a}", "is a directory"),
        ("/proc/x: {content: a}", "no file is put below"),
        ("/etc/motd: {content: a, colour: red}", "unknown key"),
    ],
)
def test_mistakes_are_told_with_their_line(what: str, said: str) -> None:
    found = mistakes(what)
    assert len(found) == 1 and said in found[0].message
    assert found[0].line == 6
