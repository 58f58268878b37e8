"""How fast a content comes that is fetched beforehand."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from imageapi.node.interrupt import never
from imageapi.node.pace import LOOK_S, Pace
from imageapi.spec.container import ContainerSpec
from imageapi.spec.image import ImageSpec, parse_image
from layercake.features.images.document import STAGED_IN_S, ImagesDocument
from layercake.features.rolls.facts import STAGE_S
from layercake.fleet.store import WantedImage
from layercake.kraken.errors import InputError
from tests.support.clock import FakeClock
from tests.support.world import opened

MB = 1_000_000
IMAGE = ImageSpec("app", f"blake2b:{'0' * 64}", 1, "http://h/x", ContainerSpec())


@dataclass
class Transfer:
    """A paced transfer, on a clock that its pauses move."""

    mbit_s: int
    clock: FakeClock = field(default_factory=FakeClock)
    pauses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pace = Pace(self.mbit_s, self.clock, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.now += seconds


def test_a_hundred_megabytes_take_as_long_as_the_limit_says() -> None:
    transfer = Transfer(100)
    began = transfer.clock.now
    for _ in range(400):
        transfer.pace.passed(MB // 4, never)
    assert transfer.clock.now - began == pytest.approx(8.0)
    assert max(transfer.pauses) <= LOOK_S


def test_time_in_which_nothing_came_is_not_made_up_for() -> None:
    transfer = Transfer(8)
    transfer.clock.now += 60.0
    began = transfer.clock.now
    transfer.pace.passed(2 * MB, never)
    assert transfer.clock.now - began == pytest.approx(2.0)


def test_without_a_limit_nobody_waits() -> None:
    transfer = Transfer(0)
    transfer.pace.passed(1000 * MB, never)
    assert transfer.pauses == []


def test_a_transfer_that_is_called_off_waits_no_more() -> None:
    transfer = Transfer(1)
    transfer.pace.passed(1000 * MB, lambda: len(transfer.pauses) >= 3)
    assert len(transfer.pauses) == 3


def test_a_rate_goes_by_the_wire_and_no_other_value_is_a_rate() -> None:
    paced = dataclasses.replace(IMAGE, mbit_s=100)
    assert parse_image(paced.to_wire()).mbit_s == 100 and parse_image(IMAGE.to_wire()).mbit_s == 0
    for wrong in (-1, 1.5, "1", True, None):
        with pytest.raises(InputError, match="mbit_s"):
            parse_image({**IMAGE.to_wire(), "mbit_s": wrong})


@pytest.mark.parametrize(("limit", "size", "mbit_s"), [(100, 7, 100), (100, 15_000, 200)])
async def test_only_what_is_staged_is_paced_and_a_roll_never_waits_in_vain(
    tmp_path: Path, limit: int, size: int, mbit_s: int
) -> None:
    """15 GB by 100 Mbit/s take 20 minutes, and a roll waits for 15."""
    assert STAGED_IN_S < STAGE_S
    async with opened(tmp_path) as world:
        record = world.node("n0")
        image = WantedImage("app", IMAGE.digest, size * MB, {})
        record.wanted = record.stage = (image,)
        document = ImagesDocument(lambda digest, node: "http://h/x", staging_mbit_s=limit)
        found = document.of(record)
        assert [each["mbit_s"] for each in found["stage"]] == [mbit_s]
        assert "mbit_s" not in found["images"][0]


async def test_the_site_says_how_fast(tmp_path: Path) -> None:
    async with opened(tmp_path, sections={"rolls": {"staging_mbit_s": 50}}) as world:
        record = world.node("n0")
        record.stage = (WantedImage("app", IMAGE.digest, MB, {}),)
        document = world.head.features.document(record)
        assert [each["mbit_s"] for each in document["stage"]] == [50]
