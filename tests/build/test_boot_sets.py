"""Boot sets on disk: named by their content, never changed, and what an older Layercake left becomes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from layercake.head.boots import Boots, BootSets
from layercake.kraken.errors import InputError, NotFound
from minos.build import sets


def fill(directory: Path, content: str, *, agent: bool = True) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in (*sets.FILES, *([sets.AGENT] if agent else [])):
        (directory / name).write_text(f"{name} {content}")
    return directory


def known(boot: Path) -> BootSets:
    return BootSets(boot, lambda data: b"signed " + data)


def test_what_an_older_layercake_built_becomes_a_set_and_the_default(tmp_path: Path) -> None:
    fill(tmp_path, "old", agent=False)
    sets.adopt(tmp_path, clear=False)
    assert (tmp_path / "vmlinuz").exists(), "an older head that still runs goes on serving it"
    newer = sets.take(tmp_path, fill(tmp_path / ".new", "new"))
    head = known(tmp_path)
    head.load("")
    assert not (tmp_path / "vmlinuz").exists() and not list(tmp_path.glob(".new*"))
    assert head.default != newer.name and (tmp_path / head.default / "vmlinuz").read_text() == "vmlinuz old"
    assert head.of(Boots()) == head.default and head.of(Boots(wanted=newer.name)) == newer.name
    head.load(newer.name)
    assert head.default == newer.name, "what was chosen stays chosen"
    head.load("gone")
    assert head.default in {s.name for s in head.all()}


def test_the_same_content_is_the_same_set(tmp_path: Path) -> None:
    first = sets.take(tmp_path, fill(tmp_path / ".a", "x"))
    again = sets.take(tmp_path, fill(tmp_path / ".b", "x"))
    other = sets.take(tmp_path, fill(tmp_path / ".c", "y"))
    assert first == again and other.name != first.name and {s.name for s in sets.all_of(tmp_path)} == {first.name, other.name}


@pytest.mark.parametrize("name", ["", "..", "../boot", ".new", "a/b", "A", "x" * 65, "a\n"])
def test_hostile_names_name_nothing(tmp_path: Path, name: str) -> None:
    fill(tmp_path / "boot", "x")
    fill(tmp_path / "boot" / ".new", "x")
    with pytest.raises(NotFound):
        sets.load(tmp_path / "boot", name)
    with pytest.raises(NotFound):
        sets.remove(tmp_path / "boot", name)


def test_what_a_node_is_told_of_its_agent(tmp_path: Path) -> None:
    name = sets.take(tmp_path, fill(tmp_path / ".a", "x")).name
    head = known(tmp_path)
    head.load("")
    assert head.order(Boots(runs="old", agent_runs="old")) is None, "nothing is wanted"
    assert head.order(Boots(runs="old", agent_runs=name, agent=name)) is None, "it has it"
    assert head.order(Boots(agent=name)) is None, "an agent that cannot be replaced"
    assert head.order(Boots(runs="old", agent_runs=name, agent="old", ask=4)) == {"set": "old", "ask": 4}, "its own"
    order = head.order(Boots(runs="old", agent_runs="old", agent=name, ask=3))
    assert order is not None and (order["set"], order["ask"], order["size"]) == (name, 3, len("agent.zip x"))
    bare = sets.take(tmp_path, fill(tmp_path / ".b", "bare", agent=False)).name
    with pytest.raises(InputError, match="cannot hand over the agent"):
        head.agent(bare)
