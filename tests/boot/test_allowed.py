"""What is planned can be booted: the inventory and each boot ask one function what may stand in a
kernel's command line; and a key that would have no effect is refused with its line."""

from __future__ import annotations

import dataclasses

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import InputError
from layercake.moduleapi.fields import Mistake
from pxe.inventory import console, kernel_args
from pxe.nodes import Node, from_record
from pxe.paths.boot_spec import command_line
from pxe.settings import Settings
from tests.support.inventory import load

TOKEN = "one-use_token.42"
CHARACTERS = "".join(map(chr, range(32, 127)))


def boots(node: Node, settings: Settings, **fields: str) -> str:
    """The command line of a node with other fields, "" if it has none."""
    changed = dataclasses.replace(node, **fields)  # type: ignore[arg-type]
    try:
        return command_line(changed, node.macs[0], TOKEN, settings, 1e9)
    except InputError:
        return ""


@pytest.mark.parametrize(
    "line",
    [
        "memmap=4G!12G",
        "acpi_osi=!",
        'acpi_osi="!Windows 2012"',
        "a=(b)",
        "a=b&c",
        "a<b",
        "a>b",
        "a?b",
        "a^b",
        "a|b",
        "!",
        "a ! b",
        "initrd=x",
        "pci=nocrs,realloc isolcpus=1-7,9 rootflags=a:b",
        "layercake.token=x",
        "$(x)",
    ],
)
def test_kernel_arguments_that_are_planned_are_booted(
    node: Node, settings: Settings, line: str
) -> None:
    try:
        planned = kernel_args(line)
    except Mistake:
        planned = ""
    assert bool(planned) == bool(boots(node, settings, kernel_args=line))
    assert planned in boots(node, settings, kernel_args=planned)


@pytest.mark.parametrize(
    "line", ["memmap=4G!12G", "acpi_osi=!", "acpi_osi=!Linux", "a=(b)", "a?b", "a^b"]
)
def test_what_means_nothing_to_boot_scripts_is_taken(line: str) -> None:
    assert kernel_args(line) == line


@pytest.mark.parametrize(
    ("device", "right"),
    [
        ("ttyS0", True),
        ("ttyS0,115200", True),
        ("ttyS0,115200n8r", True),
        ("ttyAMA0,57600e7", True),
        ("hvc0", True),
        ("ttyS0,115200n5", False),  # the kernel would take 8
        ("ttyS0,115200n8rr", False),
        ("t", False),
        ("ttyS0,5", False),
        ("ttyS1234", False),
        ("uart8250,io,0x3f8", False),
    ],
)
def test_consoles_that_are_planned_are_booted(
    node: Node, settings: Settings, device: str, *, right: bool
) -> None:
    if right:
        assert console(device) == device
    else:
        with pytest.raises(Mistake):
            console(device)
    assert bool(boots(node, settings, console=device)) is right


@given(st.text(CHARACTERS, max_size=12))
def test_no_argument_is_planned_that_a_boot_refuses(line: str) -> None:
    try:
        planned = kernel_args(line)
    except Mistake:
        return
    assert kernel_args(planned) == planned


BMC = "username: root, password: {env: BMC}"
N0 = 'mac: "52:54:00:00:00:01", ip: 10.99.0.11'
SIX = 'mac: "52:54:00:00:00:01", ip: "fd00:99::11"'


@pytest.mark.parametrize(
    ("line", "key", "said"),
    [
        (f"n0: {{{N0}, secure_boot: true}}", "secure_boot", "no effect"),
        (
            f"n0: {{{N0}, bmc: {{driver: redfish, address: b0, boot: uri, {BMC}}}}}",
            "boot",
            "UEFI HTTP Boot",
        ),
        (f"n0: {{{N0}, bmc: {{driver: ipmi, address: b0, username: {'u' * 17}, "
         "password: {env: BMC}}}", "username", "17 bytes"),
        (f"n0: {{{N0}, bmc: {{driver: command, address: p/1, program: pdu, health: hold}}}}",
         "health", "not for driver command"),
        (f"n0: {{{N0}, bmc: {{driver: command, address: p/1, program: pdu, console: log}}}}",
         "console", "not for driver command"),
        (f"n0: {{{N0}, thermal: {{governor: powersave}}}}", "governor", "no effect"),
        (f"n0: {{{N0}, thermal: {{high: [governor], cap_w: 300}}}}", "cap_w", "no effect"),
        (f"n0: {{{N0}, tpm_registers: [4]}}", "tpm_registers", "no effect"),
        (f"n0: {{{N0}, replace: auto}}", "replace", "no effect"),
        (f"n0: {{{N0}, interfaces: {{e0: {{mac: \"52:54:00:00:00:01\"}}, "
         "v7: {vlan: {id: 7, of: e0}, "
         "addresses: 10.99.0.11/24}}}", "addresses", "without a tag"),
        (f"n0: {{{SIX}}}", "", "BIOS boots by IPv4 alone"),
        (f"n0: {{{SIX}, firmware: uefi, secure_boot: true}}", "secure_boot", "by IPv6"),
    ],
)  # fmt: skip
def test_a_key_without_effect_is_refused_with_its_line(line: str, key: str, said: str) -> None:
    with pytest.raises(InventoryErrors) as caught:
        load(f"nodes:\n  {line}\n", "rack.yaml", set())
    [problem] = [one for one in caught.value.problems if said in one.message]
    assert problem.line == 2
    assert not key or problem.column == f"  {line}".index(f"{key}: ") + len(key) + 3


@pytest.mark.parametrize(
    "line",
    [
        f"n0: {{{N0}, firmware: uefi, secure_boot: true}}",
        f"n0: {{{N0}, bmc: {{driver: ipmi, address: b0, username: {'u' * 16}, "
        "password: {env: BMC}}}",
        f"n0: {{{N0}, thermal: {{high: [governor, cap], governor: performance, cap_w: 300}}}}",
        f"n0: {{{N0}, tpm: recorded, tpm_registers: [4]}}",
        f"n0: {{{N0}, replace: auto, serial: SN-1}}",
    ],
)
def test_keys_with_effect_are_taken(line: str) -> None:
    assert list(load(f"nodes:\n  {line}\n", "rack.yaml", set()).nodes) == ["n0"]


@pytest.mark.parametrize("arguments", [0, 400, 1024])
@pytest.mark.parametrize("routes", [0, 4, 12, 32])
def test_a_line_that_is_planned_has_room_in_a_kernel(
    node: Node, settings: Settings, arguments: int, routes: int
) -> None:
    """With everything else as long as it gets."""
    word = "fd00:99:1111:2222:3333:4444:5555:"
    network: dict[str, object] = {
        "subnet": "fd00:99:1111:2222::/64",
        "gateway": f"{word}ffff",
        "dns": [f"{word}{number:x}" for number in range(0xF000, 0xF002)],
        "mtu": 9000,
        "routes": {f"{word[:-1]}:{n + 4096:x}/128".replace("99", "98"): f"{word}fffe"
                   for n in range(routes)},
    }  # fmt: skip
    entry = {"mac": "52:54:00:00:00:01", "ip": f"{word}eeee", "firmware": "uefi",
             "kernel_args": "a" * arguments}  # fmt: skip
    text = yaml.safe_dump({"networks": {"far": network}, "nodes": {"n" * 63: entry}})
    longest = dataclasses.replace(
        from_record("f" * 32, {"name": "n" * 63, "macs": [entry["mac"]], "ip": entry["ip"],
                               "network": {"name": "far", **network}}, settings),
        kernel_args="a" * arguments, boot_set="b" * 64, console="ttyAMA99,115200n8r", stranger=True,
    )  # fmt: skip
    try:
        load(text, "rack.yaml", set())
    except InventoryErrors as errors:
        assert "a kernel's command line has room for" in str(errors)
        assert arguments + 79 * routes > 900, "there was room"
    else:
        assert boots(longest, settings, kernel_args="a" * arguments)
