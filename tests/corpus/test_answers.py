"""Answers of BMCs by IPMI and configurations of images, as they come: what is read of each, and
that nothing else is raised whatever is cut off or bent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imageapi.build.recipe import read
from layercake.kraken.errors import InputError, OperationFailed
from powerman.ipmi import facts

HERE = Path(__file__).parent
Answers = list[tuple[str, bytes, str]]


def answers() -> Answers:
    """(asked, data, what is read) of each line."""
    found = []
    for line in (HERE / "ipmi" / "answers.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            asked, data, said = (part.strip() for part in line.partition("#")[0].split("|"))
            found.append((asked, bytes.fromhex(data), said))
    return found


def boot(data: bytes) -> str:
    device, mode = facts.ipmi_boot(data)
    try:
        is_network = str(facts.parse_boot(data))
    except OperationFailed:
        is_network = "refused"
    return f"{is_network} {device or '-'} {mode or '-'}"


def clock(data: bytes) -> str:
    seconds = facts.ipmi_clock(data)
    return "none" if seconds is None else f"{seconds:.0f}"


def log(data: bytes) -> str:
    mark = facts.parse_log_mark(data)
    return "none" if mark is None else f"{mark.count} {mark.changed}"


def draw(data: bytes) -> str:
    sensor = facts.dcmi_draw(data)
    return "none" if sensor is None else f"{sensor.value:.0f}"


READ: dict[str, Callable[[bytes], str]] = {
    "chassis": lambda data: f"{facts.parse_power(data).value} {facts.ipmi_health(data).value}",
    "boot": boot,
    "clock": clock,
    "log": log,
    "firmware": lambda data: next((f.value for f in facts.ipmi_firmware(data)), "none"),
    "draw": draw,
}


@pytest.mark.parametrize(("asked", "data", "said"), answers(), ids=lambda one: str(one)[:40])
def test_answers_by_ipmi(asked: str, data: bytes, said: str) -> None:
    assert READ[asked](data) == said


@given(st.sampled_from(answers()), st.integers(0, 20), st.binary(max_size=4), st.integers(0, 20))
def test_an_answer_may_be_cut_off_or_bent(
    answer: tuple[str, bytes, str], end: int, put: bytes, at: int
) -> None:
    asked, data, _ = answer
    bent = (data[:at] + put + data[at + len(put) :])[:end]
    try:
        READ[asked](bent)
    except OperationFailed as error:
        assert error.message.startswith("cannot read")


CONFIGURATIONS = json.loads((HERE / "images" / "configurations.json").read_text())


@pytest.mark.parametrize("entry", CONFIGURATIONS, ids=lambda entry: entry["what"])
def test_configurations_of_images(entry: dict[str, Any]) -> None:
    if "refused" in entry:
        with pytest.raises(InputError, match=entry["refused"]):
            read(entry["config"])
        return
    recipe = read(entry["config"])
    assert list(recipe.command) == entry["command"] and len(recipe.notes) == entry["notes"]
    assert dict(recipe.env) == entry.get("env", {}) and recipe.systemd is entry.get("systemd")


_NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.sampled_from(CONFIGURATIONS), st.sampled_from(["Entrypoint", "Cmd", "Env", "User",
       "WorkingDir", "StopSignal"]), _NONSENSE)  # fmt: skip
def test_nonsense_in_a_configuration_is_refused_or_noted(
    entry: dict[str, Any], field: str, nonsense: object
) -> None:
    try:
        read({**entry["config"], field: nonsense})
    except InputError as error:
        assert "configuration" in error.message
