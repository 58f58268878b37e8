"""BMCs of a network that were asked for: page by page, no network that is too large, and whose they
are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from layercake.kraken.errors import InputError
from tests.machines.test_discovery import Stranger, report
from tests.machines.test_hardware import survey
from tests.support.world import World

UUID = "00112233-4455-6677-8899-aabbccddeeff"


async def test_pages_and_whose_they_are(world: World) -> None:
    await Stranger(world).says(report(bmc={"address": "10.2.0.7"}))
    made = report("SN-5", "9", cards=[])
    made["smbios"]["system"]["uuid"] = UUID
    await survey(world, "n0", made)
    asked: list[list[str]] = []

    async def ask(module: str, method: str, params: Mapping[str, Any], timeout: float = 0.0) -> Any:
        assert (module, method) == ("powerman", "power.scan")
        asked.append(params["addresses"])
        one = {
            "protocol": "ipmi",
            "vendor": "",
            "product": "",
            "version": "",
            "uuid": "",
            "node": "",
        }
        answers = [
            {**one, "address": "10.2.0.5", "node": "n1"},
            {**one, "address": "10.2.0.6", "uuid": UUID},
            {**one, "address": "10.2.0.7"},
            {**one, "address": "10.2.0.8", "uuid": "x"},
        ]
        return [answer for answer in answers if answer["address"] in params["addresses"]]

    world.head.modules.host.call = ask  # type: ignore[method-assign]
    first = await world.ops.machines.scan("10.2.0.0/23", 0)
    assert [(one["node"], one["machine"]) for one in first["found"]] == [
        ("n1", ""),
        ("n0", ""),
        ("", "02:00:00:00:00:01"),
        ("", ""),
    ]
    assert (first["scanned"], first["more"]) == (256, 256)
    last = await world.ops.machines.scan("10.2.0.0/23", 256)
    assert (last["found"], last["scanned"], last["more"]) == ([], 254, 0)
    assert (
        sum(map(len, asked)) == 510 and asked[0][0] == "10.2.0.1" and asked[1][-1] == "10.2.1.254"
    )
    assert (await world.ops.machines.scan("10.2.0.7", 0))["scanned"] == 1


@pytest.mark.parametrize(
    ("network", "start"),
    [
        ("10.2.0.0/19", 0),
        ("10.2.0.1/24", 0),
        ("fd00::/120", 0),
        ("x", 0),
        ("224.0.0.0/24", 0),
        ("10.2.0.0/30", 2),
        ("0.0.0.0/0", 0),
    ],
)
async def test_what_is_not_scanned(world: World, network: str, start: int) -> None:
    with pytest.raises(InputError):
        await world.ops.machines.scan(network, start)


def a_bmc(address: str, uuid: str = "") -> dict[str, str]:
    return {
        "address": address,
        "protocol": "ipmi",
        "vendor": "",
        "product": "",
        "version": "",
        "uuid": uuid,
        "node": "",
    }


@pytest.mark.parametrize(
    ("uuids", "addresses", "answer", "machine"),
    [
        ((UUID, UUID), ("", ""), a_bmc("10.2.0.9", UUID), "n0, n1"),
        ((UUID, ""), ("", ""), a_bmc("10.2.0.9", UUID.upper()), "n0"),
        (("0" * 8 + UUID[8:].translate({ord(c): "0" for c in "123456789abcdef"}), ""), ("", ""),
         a_bmc("10.2.0.9", "00000000-0000-0000-0000-000000000000"), ""),
        (("03000200-0400-0500-0006-000700080009", ""), ("", ""),
         a_bmc("10.2.0.9", "03000200-0400-0500-0006-000700080009"), ""),
        (("", ""), ("192.168.0.120", ""), a_bmc("192.168.0.120"), ""),
        (("", ""), ("169.254.95.118", ""), a_bmc("169.254.95.118"), ""),
        (("", ""), ("10.2.0.9", "10.2.0.9"), a_bmc("10.2.0.9"), "n0, n1"),
        ((UUID, ""), ("", "10.2.0.9"), a_bmc("10.2.0.9", UUID), "n1, n0"),
        ((UUID, ""), ("10.2.0.9", ""), a_bmc("10.2.0.9", UUID), "n0"),
    ],
)  # fmt: skip
async def test_a_mark_that_is_not_unique_names_no_node(
    world: World,
    uuids: tuple[str, str],
    addresses: tuple[str, str],
    answer: dict[str, str],
    machine: str,
) -> None:
    for number, (uuid, address) in enumerate(zip(uuids, addresses, strict=True)):
        made = report(f"SN-{number}", f"{number}", cards=[], bmc={"address": address})
        made["smbios"]["system"]["uuid"] = uuid
        await survey(world, f"n{number}", made)

    async def call_module(
        module: str, method: str, params: Mapping[str, Any], timeout: float = 0.0
    ) -> Any:
        return [answer]

    world.head.modules.host.call = call_module  # type: ignore[method-assign]
    [row] = (await world.ops.machines.scan("10.2.0.0/24", 0))["found"]
    one = "" if ", " in machine else machine
    assert (row["node"], row["machine"]) == (one, "" if one else machine)
