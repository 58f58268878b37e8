"""`node set --save` and `node rename --save`: they change the entry; comments, order and style
stay."""

from __future__ import annotations

import pytest

from layercake.client.saving.entries import edit_entry, rename_entries
from layercake.kraken.errors import InputError

RACK = """\
# the rack by the door
defaults: {console: ttyS0}   # all of them
nodes:
  # the first one
  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10, kernel_args: quiet}  # hangs now and then
  n1:
    ip: 10.1.0.11      # by the window
    mac: "52:54:00:00:00:11"
    images:            # both
      - base
      - slurm
    bmc: {address: 10.9.0.1}

  # the second row
  n[2-4]: {mac: "52:54:00:00:00:12+", ip: 10.1.0.12+}
  n5:
"""


@pytest.mark.parametrize(
    ("node", "wanted", "unset", "old", "new"),
    [
        ("n0", {"kernel_args": "debug"}, (), "kernel_args: quiet}", "kernel_args: debug}"),
        ("n0", {"state": "off"}, (), "args: quiet}", "args: quiet, state: 'off'}"),
        ("n0", {"bmc.address": "10.9.0.9"}, (), "quiet}", "quiet, bmc: {address: 10.9.0.9}}"),
        ("n0", {}, ("kernel_args",), ", kernel_args: quiet}", "}"),
        ("n0", {}, ("ip",), "ip: 10.1.0.10, ", ""),
        ("n1", {"ip": "10.1.0.99"}, (), "10.1.0.11      #", "10.1.0.99      #"),
        ("n1", {"bmc.port": 624}, (), "10.9.0.1}", "10.9.0.1, port: 624}"),
        ("n1", {"priority": 3}, (), "10.9.0.1}\n", "10.9.0.1}\n    priority: 3\n"),
        ("n1", {}, ("mac",), '    mac: "52:54:00:00:00:11"\n', ""),
        ("n1", {}, ("bmc.address",), "bmc: {address: 10.9.0.1}", "bmc: {}"),
        ("n1", {}, ("priority",), "", ""),
        ("n5", {"ip": "10.1.0.15"}, (), "n5:\n", "n5: {ip: 10.1.0.15}\n"),
    ],
    ids=lambda value: None,
)
def test_a_value_goes_where_it_belongs(
    node: str, wanted: dict[str, object], unset: tuple[str, ...], old: str, new: str
) -> None:
    assert edit_entry(RACK, "rack.yaml", node, wanted, unset) == RACK.replace(old, new, 1)
    dos = RACK.replace("\n", "\r\n")
    found = edit_entry(dos, "rack.yaml", node, wanted, unset)
    assert found.replace("\r\n", "\n") == RACK.replace(old, new, 1)


def test_a_list_in_lines_becomes_one_in_a_line() -> None:
    text = edit_entry(RACK, "rack.yaml", "n1", {"images": ["base", "mpi"]}, ())
    assert "# both\n      [base, mpi]\n    bmc:" in text


@pytest.mark.parametrize(
    ("text", "node", "said"),
    [
        (RACK, "n3", "n3 is one of n[2-4], line 15"),
        (RACK, "n9", "n9 is not in it"),
        ("nodes: {n0: &a {ip: 10.1.0.1}, n1: *a}", "n0", "cannot be followed"),
    ],
    ids=["range", "unknown", "shared"],
)
def test_what_cannot_be_said_is_refused(text: str, node: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        edit_entry(text, "rack.yaml", node, {"kernel_args": "debug"}, ())
    assert said in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("names", "old", "new"),
    [
        ({"n0": "gpu0"}, "  n0: {mac", "  gpu0: {mac"),
        ({"n1": "m1.rack7"}, "  n1:\n", "  m1.rack7:\n"),
        ({"n5": "m5"}, "  n5:\n", "  m5:\n"),
        ({f"n{i}": f"m{i + 7}" for i in (2, 3, 4)}, "  n[2-4]: {", "  m[9-11]: {"),
    ],
    ids=["one", "in-lines", "empty", "range"],
)
def test_another_name_stands_where_the_old_one_did(
    names: dict[str, str], old: str, new: str
) -> None:
    assert rename_entries(RACK, "rack.yaml", names) == RACK.replace(old, new, 1)


def test_several_entries_have_other_names_at_once() -> None:
    names = {"n0": "m0", "n1": "m1"}
    text = rename_entries(RACK, "rack.yaml", names)
    assert text == RACK.replace("  n0:", "  m0:").replace("  n1:", "  m1:")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"n3": "m3"}, "not all of n[2-4], line 15, are renamed to one range"),
        ({"n2": "m3", "n3": "m2", "n4": "m4"}, "not all of n[2-4]"),
        ({"n9": "m9"}, "n9 is not in it"),
        ({"n0": "m0", "n9": "m9"}, "n9 is not in it"),
    ],
    ids=["part-of-a-range", "out-of-order", "unknown", "one-unknown"],
)
def test_a_name_that_cannot_be_written_is_refused(names: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as caught:
        rename_entries(RACK, "rack.yaml", names)
    assert said in caught.value.message
