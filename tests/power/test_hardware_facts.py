"""What a BMC knows of its machine: names and values as they come, made harmless and bounded."""

from __future__ import annotations

from powerman.hardware import Fact, facts
from powerman.ipmi.facts import ipmi_firmware
from powerman.redfish.facts import redfish_facts


def test_what_is_no_fact_is_left_out() -> None:
    found = facts(
        "PSU \x1b[2J1",
        [
            ("Model", "X9\n"),
            ("Serial", ""),
            ("Empty", None),
            ("On", True),
            ("Watts", 750),
            ("", "x"),
            ("Long", "y" * 500),
        ],
    )
    assert found[:2] == [Fact("PSU [2J1", "Model", "X9"), Fact("PSU [2J1", "Watts", "750")]
    assert [fact.what for fact in found] == ["Model", "Watts", "Long"] and len(
        found[2].value
    ) == 120


def test_the_firmware_of_a_bmc() -> None:
    assert (
        ipmi_firmware(bytes.fromhex("20 81 02 35 02")) == [Fact("BMC", "Firmware", "2.35")]
        and ipmi_firmware(b"\x20") == []
    )


def test_a_system_and_its_manager() -> None:
    system = {"Model": "R640", "SerialNumber": "S1", "BiosVersion": "2.1", "Oem": {"x": 1}}
    found = redfish_facts(system, {"FirmwareVersion": "6.10"})
    assert found == [
        Fact("System", "Model", "R640"),
        Fact("System", "SerialNumber", "S1"),
        Fact("System", "BiosVersion", "2.1"),
        Fact("BMC", "FirmwareVersion", "6.10"),
    ]
    assert redfish_facts({}, {}) == []
