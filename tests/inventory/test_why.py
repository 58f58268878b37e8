"""Which line of an inventory gives a node a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from layercake.cli.main import main

RACK = """\
defaults: {console: ttyS0, kernel_args: all}
groups:
  a:
    kernel_args: of-a
    bmc: {driver: ipmi, port: 623}
  b: {kernel_args: of-b}
  off: {bmc: none}
nodes:
  n0: {groups: [a, b], ip: 10.1.0.1}
  n1.rack:
    groups: [b, a]
    kernel_args: own
    bmc: {port: 700}
  n[2-3]: {groups: [a, off], ip: 10.1.0.2+}
  n4: {files: {/etc/a.conf: {content: x}}}
"""


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        (
            "n0.kernel_args",
            [
                "6: group b: of-b",
                "4: group a: of-a (does not count)",
                "1: defaults: all (does not count)",
            ],
        ),
        (
            "n1.rack.kernel_args",
            [
                "12: node n1.rack: own",
                "4: group a: of-a (does not count)",
                "6: group b: of-b (does not count)",
                "1: defaults: all (does not count)",
            ],
        ),
        ("n1.rack.bmc.driver", ["5: group a: ipmi"]),
        ("n1.rack.bmc.port", ["13: node n1.rack: 700", "5: group a: 623 (does not count)"]),
        ("n3.ip", ["14: nodes n[2-3]: 10.1.0.2+"]),
        ("n3.bmc.port", ["7: group off: there is none", "5: group a: 623 (does not count)"]),
        ("n4.files./etc/a.conf.content", ["15: node n4: x"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_line_that_counts_is_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: str, lines: list[str]
) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text(RACK)
    assert main(["plan", str(file), "--why", asked]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{file}:{line}" for line in lines]


def test_what_nobody_says_is_said_so_and_an_unknown_node_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text(RACK)
    assert main(["plan", str(file), "--why", "n0.profile"]) == 0
    assert "says nothing of profile of n0" in capsys.readouterr().out
    for known in ("n0.images", "n0.bmc.address", "n0.bmc", "n0.disks.data.volumes", "n0.labels.a"):
        assert main(["plan", str(file), "--why", known]) == 0, known
    capsys.readouterr()
    for asked, why in (
        ("n0.kernel_arg", "did you mean kernel_args?"),
        ("n1.rack.bmc.adress", "did you mean address?"),
        ("n0.bmx.address", "did you mean bmc?"),
        ("n0.zzzzzz", "there is no key 'zzzzzz'"),
        ("n9.ip", "no such node"),
        ("n0", "no key is named"),
        ("\x1b[2J.x", "no such node"),
    ):
        assert main(["plan", str(file), "--why", asked]) == 2
        said = capsys.readouterr().err
        assert why in said and "\x1b" not in said
