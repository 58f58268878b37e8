"""Records, settings and what BMCs say, as facts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pyghmi import exceptions

from layercake.kraken.errors import InputError, OperationFailed
from powerman.driver import PowerState, Unsupported
from powerman.ipmi.facts import boot_network_data, parse_power
from powerman.ipmi.pyghmi_worker import kind_of, text_of
from powerman.redfish.connection import retry_seconds
from powerman.redfish.facts import Targets, choose_reset, message_of
from powerman.redfish.facts import parse_power as parse_redfish_power
from powerman.service import phase
from powerman.settings import BmcSpec


def test_a_record_becomes_a_spec(make_record: Any) -> None:
    spec = BmcSpec.from_record("id-1", make_record("n1", port=1623, cipher_suite=3))
    assert (spec.node, spec.name, spec.where, spec.cipher_suite, spec.firmware) == (
        "id-1",
        "n1",
        "192.0.2.1:1623",
        3,
        "bios",
    )


@pytest.mark.parametrize(
    ("bmc", "url"),
    [
        ({"address": "192.0.2.9"}, "https://192.0.2.9"),
        ({"address": "192.0.2.9", "port": 8000}, "https://192.0.2.9:8000"),
        ({"address": "2001:db8::9", "port": 8000}, "https://[2001:db8::9]:8000"),
        ({"address": "https://bmc.example/"}, "https://bmc.example"),
        ({"address": "http://192.0.2.9:8000", "port": 8000}, "http://192.0.2.9:8000"),
    ],
)
def test_redfish_addresses(make_record: Any, bmc: dict[str, Any], url: str) -> None:
    assert (
        BmcSpec.from_record("n1", make_record(**{"port": None, "driver": "redfish", **bmc})).where
        == url
    )


@pytest.mark.parametrize(
    ("bmc", "word"),
    [
        ({"driver": "ilo"}, "bmc.driver"),
        ({"address": ""}, "bmc.address"),
        ({"password": None}, "bmc.password"),
        ({"port": -1}, "bmc.port"),
        ({"cipher_suite": 8}, "bmc.cipher_suite"),
        ({"timeout_s": "soon"}, "bmc.timeout_s"),
        ({"password": "x" * 21}, "20 bytes"),
    ],
)
def test_mistakes_in_a_record_are_named(make_record: Any, bmc: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        BmcSpec.from_record("n1", make_record(**bmc))


def test_a_node_without_bmc_is_an_input_error() -> None:
    with pytest.raises(InputError, match="no bmc"):
        BmcSpec.from_record("n1", {"name": "n1", "bmc": None})


def test_the_password_is_not_printed(make_record: Any) -> None:
    record = make_record()
    assert record["bmc"]["password"] not in repr(BmcSpec.from_record("n1", record))


def test_chassis_status() -> None:
    assert parse_power(b"\x01\x00\x00") is PowerState.ON
    assert parse_power(b"\x20\x00\x00") is PowerState.OFF
    with pytest.raises(OperationFailed):
        parse_power(b"")


def test_the_boot_device_is_for_the_next_boot_and_in_the_firmwares_mode() -> None:
    assert boot_network_data("bios") == b"\x05\x80\x04\x00\x00\x00"
    assert boot_network_data("uefi") == b"\x05\xa0\x04\x00\x00\x00"


@pytest.mark.parametrize(
    ("word", "state"),
    [("On", PowerState.ON), ("off", PowerState.OFF), ("PoweringOn", PowerState.OFF)],
)
def test_redfish_power_words(word: str, state: PowerState) -> None:
    assert parse_redfish_power({"PowerState": word}, "there") is state


def test_a_redfish_system_without_power_state_is_a_failure() -> None:
    with pytest.raises(OperationFailed, match="PowerState None"):
        parse_redfish_power({}, "there")


def test_the_best_reset_type_that_the_system_knows_is_taken() -> None:
    def choose(action: str, *types: str) -> str:
        return choose_reset(action, Targets("/s", "/r", frozenset(types)), "there")

    assert choose("on", "ForceOn", "On") == "On"
    assert choose("on", "ForceOn", "ForceOff") == "ForceOn"
    assert choose("soft", "PushPowerButton") == "PushPowerButton"
    assert choose("off") == "ForceOff"
    with pytest.raises(Unsupported, match="GracefulShutdown"):
        choose("soft", "On")


def test_redfish_errors_are_readable() -> None:
    extended = {
        "error": {
            "message": "see",
            "@Message.ExtendedInfo": [{"Message": "no such type"}, {"MessageId": "x"}],
        }
    }
    assert message_of(extended) == "no such type"
    assert message_of({"error": {"message": "broken"}}) == "broken"
    assert message_of({"error": "odd"}) == message_of({}) == ""


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (
            {"MessageId": "Base.1.18.PropertyMissing", "MessageArgs": ["BootSourceOverrideMode"]},
            "The property BootSourceOverrideMode is a required property and must be included in "
            "the request.",
        ),
        ({"MessageId": "PropertyMissing", "MessageArgs": "odd"}, "The property unknown is a "),
        ({"MessageId": "Base.1.0.NoSuchThing"}, ""),
        ({"MessageId": "Maker.1.0.PropertyMissing"}, ""),
        ({"MessageId": ["odd"]}, ""),
        ({"Message": "in words", "MessageId": "Base.1.0.PropertyMissing"}, "in words"),
    ],
)
def test_a_message_without_its_text_has_that_of_the_standard(
    sent: dict[str, Any], text: str
) -> None:
    found = message_of({"error": {"@Message.ExtendedInfo": [sent]}})
    assert found.startswith(text) and bool(found) == bool(text)


def test_pyghmi_errors_are_told_apart() -> None:
    assert kind_of(ValueError("Incorrect password provided")) == "login"
    assert kind_of(ValueError("Session no longer connected: timeout")) == "unreachable"
    assert kind_of(ValueError("anything else")) == "failed"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (exceptions.IpmiException("Insufficient resources"), "Insufficient resources"),
        (exceptions.IpmiException(""), "the BMC refuses it, and does not say why"),
        (exceptions.InvalidParameterValue("Unknown mode"), "Unknown mode"),
        (KeyError("data"), "the BMC's answer makes no sense (KeyError: 'data')"),
    ],
    ids=["refused", "silent", "invalid", "odd"],
)
def test_errors_of_pyghmi_are_said_in_words(error: Exception, text: str) -> None:
    assert text_of(error) == text


def test_polls_are_spread_over_the_period() -> None:
    places = sorted(phase(f"n{i}") for i in range(1000))
    assert places[0] >= 0.0
    assert places[-1] < 1.0
    assert max(b - a for a, b in itertools.pairwise(places)) < 0.02


@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        ("7", 7),
        ("Wed, 21 Oct 2015 07:28:10 GMT", 10),
        ("Wed, 21 Oct 2015 07:27:00 GMT", 0),
        ("Wed, 21 Oct 9999 07:28:10 GMT", 999_999),
        ("Wed, 21 Oct 2015", 0),
        ("-5", 0),
        ("1" * 5000, 0),
        ("", 0),
    ],
)
def test_a_retry_after_is_seconds_or_a_date_by_the_bmcs_own_clock(after: str, seconds: int) -> None:
    assert retry_seconds(after, "Wed, 21 Oct 2015 07:28:00 GMT") == seconds
    if ":" in after:
        assert retry_seconds(after, "") == 0
