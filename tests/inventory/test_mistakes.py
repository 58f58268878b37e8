"""Mistakes: all at once, each with its line, what was expected and the nearest valid name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layercake.inventory.problems import InventoryErrors, Problem
from layercake.kraken.errors import InputError
from tests.support.inventory import load

Mistakes = Callable[..., list[Problem]]

TEN = """\
defaults: {firmware: biso, images: [alpnie]}
groups:
  ipmi:
    bmc: {driver: ipmi, username: admin, password: hunter2}
nodes:
  n0: {groups: [impi], mac: "52:54:00:00:00:01", ip: 10.99.0.50}
  n1: {mac: "52:54:00:00:00", ip: 10.99.0.51}
  n2: {mac: "52:54:00:00:00:03", ip: 10.99.0.300}
  n3: {mac: "52:54:00:00:00:01", ip: 10.99.0.53}
  N4: {mac: "52:54:00:00:00:04", ip: 10.99.0.54}
  n5: {mac: "52:54:00:00:00:05", ip: 10.99.0.55, frimware: uefi}
  c[00-03]: {mac: ["52:54:00:00:01:00", "52:54:00:00:01:01"], ip: 10.99.1.0+}
"""


def test_ten_mistakes_are_reported_at_once(mistakes: Mistakes) -> None:
    found = mistakes(TEN, {"alpine", "debian"})
    assert [(p.line, p.message.split(":")[0]) for p in found] == [
        (1, "firmware"),
        (1, "images"),
        (4, "bmc.password"),
        (6, "groups"),
        (7, "mac"),
        (8, "ip"),
        (9, "MAC address 52"),
        (10, "'N4' is not a host name"),
        (11, "n5"),
        (12, "mac"),
    ]
    assert all(p.file == "rack.yaml" and p.column > 1 for p in found)
    hints = [p.hint for p in found]
    assert hints[0] == "did you mean bios?"
    assert hints[1] == "did you mean alpine?"
    assert "{file: /path/on/the/head}" in hints[2]
    assert hints[3] == "did you mean ipmi?"
    assert hints[6] == "node n0 has it, line 6"
    assert hints[7] == "did you mean n4?"
    assert hints[8] == "did you mean firmware?"
    assert "4 nodes, the list 2 values" in found[9].message


def test_the_error_shows_every_place_and_no_password() -> None:
    with pytest.raises(InputError) as caught:
        load(TEN, "rack.yaml", {"alpine"})
    text = str(caught.value)
    assert "10 mistakes" in text
    assert text.count("\n  rack.yaml:") == 10
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "secret",
    [
        "hunter2",
        "12345678",
        "[hunter2]",
        "{file: hunter2}",
        "{env: 'hunter2 !'}",
        "*hunter2",
        "!hunter2 x",
        "{fiel: hunter2}",
        "{file: /a, env: hunter2}",
        "'hunter2",
        '"hunter2\\q"',
        "@hunter2",
        "%hunter2",
    ],
)
def test_a_password_in_the_file_is_a_mistake_and_never_shown(
    mistakes: Mistakes, secret: str
) -> None:
    found = mistakes(f"""\
        groups:
          ipmi:
            bmc: {{driver: ipmi, password: {secret}}}
        """)
    assert found[0].line >= 3
    assert not any("hunter2" in str(p) or "12345678" in str(p) for p in found)


def test_a_password_in_a_bmc_address_is_a_mistake_and_never_shown(mistakes: Mistakes) -> None:
    found = mistakes("""\
        nodes:
          n0: {mac: "52:54:00:00:00:01", ip: 10.0.0.1, bmc: {driver: redfish, address: "https://admin:hunter2@10.1.0.1"}}
        """)
    assert [p.line for p in found] == [2]
    assert "username and password" in found[0].hint
    assert "hunter2" not in str(found[0])


NODE = 'nodes:\n  n0: {{mac: "52:54:00:00:00:01", ip: 10.0.0.1, {}}}\n'


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("arch: x86", "arch: expected x86_64 or aarch64"),
        ("arch: aarch64", "aarch64 has no BIOS"),
        ("state: on", "state: expected up or off"),
        ("firmware: [bios]", "firmware: expected text, found a list"),
        ("images: debian", "images: expected a list"),
        ("images: [debian, debian]", "images: debian stands twice"),
        ("images: ['../etc']", "is not an image name"),
        ("images: [a:b:c]", "is not an image name"),
        ("groups: ipmi", "groups: expected a list"),
        ("console: 'ttyS0 init=/bin/sh'", "is not a console"),
        ("boot_timeout: 5", "boot_timeout: expected seconds"),
        ("boot_timeout: true", "boot_timeout: expected seconds"),
        ('kernel_args: "a\\nboot"', "kernel_args: the character '\\n'"),
        ('kernel_args: "x={{ y }}"', "kernel_args: the character {"),
        ('kernel_args: "a\\x7fb"', "kernel_args: the character"),
        ("kernel_args: 'a && shell'", "kernel_args: && may not stand"),
        ("kernel_args: '${net0/mac}'", "kernel_args: the character $"),
        ("kernel_args: layercake.token=x", "'layercake.token' is set by Layercake"),
        ("kernel_args: 7", "kernel_args: expected text, found a number"),
        (
            "bmc: {driver: ipmy, address: 10.1.0.1}",
            "bmc.driver: expected ipmi or redfish or command",
        ),
        (
            "thermal: {high: [off]}",
            "thermal.high: expected some of governor, cap, drain, found 'off'",
        ),
        ("thermal: {critical: [cap]}", "thermal.cap_w is missing"),
        ("thermal: {critical: drain}", "thermal.critical: expected a list"),
        ("thermal: {governor: ../x}", "thermal.governor: '../x' is no governor"),
        ("thermal: {cap_w: 0}", "thermal.cap_w: expected watts"),
        ("minos: {cores: 3-1}", "minos.cores: 3-1 is no range of cores"),
        ("minos: {cores: [0, true]}", "minos.cores: expected cores, found true"),
        ("minos: {cores: 8192}", "minos.cores: 8192 is no range of cores from 0 to 8191"),
        ("bmc: {driver: command, address: pdu1/7}", "bmc.program is missing"),
        ("bmc: {driver: command, program: /bin/sh, address: pdu1/7}", "is no name of a program"),
        ("bmc: {driver: command, program: ../sh, address: pdu1/7}", "is no name of a program"),
        (
            "bmc: {driver: command, program: apc, address: -rf}",
            "neither an IP address nor a host name",
        ),
        (
            "bmc: {driver: command, program: apc, address: 'pdu1 7'}",
            "neither an IP address nor a host name",
        ),
        (
            'bmc: {driver: command, program: apc, address: "pdu1/\\e[2J"}',
            "neither an IP address nor a host name",
        ),
        (
            "bmc: {driver: command, program: apc, address: 'pdu1;reboot'}",
            "neither an IP address nor a host name",
        ),
        (
            "bmc: {driver: command, program: apc, address: pdu1/7, port: 161}",
            "bmc.port is not for driver command",
        ),
        (
            "bmc: {driver: command, program: apc, address: pdu1/7, timeout_s: 9}",
            "bmc.timeout_s is not for driver command",
        ),
        (
            "bmc: {driver: command, program: apc, address: pdu1/7, boot: media}",
            "bmc.boot: media is for driver redfish",
        ),
        (
            "bmc: {driver: ipmi, program: apc, address: 10.1.0.1}",
            "bmc.program is for driver command",
        ),
        ("bmc: {driver: ipmi, address: pdu1/7}", "neither an IP address nor a host name"),
        ("bmc: {driver: ipmi}", "its bmc has no address"),
        ("bmc: {address: 10.1.0.1}", "its bmc has no driver"),
        ("bmc: ipmi", "n0: bmc: expected a mapping, found text"),
        (
            "bmc: {driver: ipmi, address: 10.1.0.1, port: 70000}",
            "bmc.port: expected a port number from 1 to 65535, found 70000",
        ),
        (
            "bmc: {driver: ipmi, address: 10.1.0.1, port: '623'}",
            "bmc.port: expected a port number from 1 to 65535, found text",
        ),
        ("bmc: {driver: ipmi, address: 'https://10.1.0.1'}", "is a URL, and the driver is ipmi"),
        ("bmc: {driver: ipmi, address: 10.1.0.1, cipher_suite: 99}", "bmc.cipher_suite: expected"),
        (
            "bmc: {driver: ipmi, address: 10.1.0.1, cipher_suite: 8}",
            "bmc.cipher_suite: expected cipher suite 3 or 17",
        ),
        (
            "bmc: {driver: ipmi, address: 10.1.0.1, verify_tls: false}",
            "bmc.verify_tls is for driver redfish",
        ),
        (
            "bmc: {driver: ipmi, address: 10.1.0.1, system: /redfish/v1/Systems/1}",
            "bmc.system is for driver redfish",
        ),
        (
            "bmc: {driver: redfish, address: 10.1.0.1, cipher_suite: 17}",
            "bmc.cipher_suite is for driver ipmi",
        ),
        ("bmc: nothing", "n0: bmc: expected a mapping, found text"),
        ("bmc: {driver: redfish, address: 'ftp://10.1.0.1'}", "bmc.address: 'ftp' is not a way"),
        ("bmc: {driver: redfish, address: 'https://10.1.0.1/redfish'}", "more than host and port"),
        (
            "bmc: {driver: redfish, address: 'https://10.1.0.1:8000', port: 443}",
            "the URL says port 8000",
        ),
        ("bmc: {driver: redfish, address: 'https://10.1.0.1:99999'}", "the port in the URL"),
        ("bmc: {driver: redfish, address: '10.1.0.999'}", "neither an IP address nor a host name"),
        (
            "bmc: {driver: redfish, address: 10.1.0.1, verify_tls: no}",
            "bmc.verify_tls: expected true, false",
        ),
        (
            "bmc: {driver: redfish, address: 10.1.0.1, system: /redfish/v1/../x}",
            "is not the path of a Redfish system",
        ),
        ("bmc: {driver: ipmi, address: 10.1.0.1, passwort: {env: A}}", "unknown key 'passwort'"),
    ],
)
def test_one_bad_value_is_one_mistake_in_its_line(
    mistakes: Mistakes, fields: str, message: str
) -> None:
    found = mistakes(NODE.format(fields))
    assert len(found) == 1, found
    assert message in found[0].message
    assert found[0].line == 2


@pytest.mark.parametrize(
    "name",
    [
        "N0",
        "n_0",
        "-n",
        "n-",
        "a..b",
        "'n 0'",
        "'../n0'",
        "'n0; reboot'",
        '"n0\\n"',
        "10.0.0.1",
        "'007'",
        "localhost",
        "é",
        "a" * 64,
        "'*'",
    ],
)
def test_a_hostile_name_is_refused(mistakes: Mistakes, name: str) -> None:
    found = mistakes(f'nodes:\n  {name}: {{mac: "52:54:00:00:00:01", ip: 10.0.0.1}}\n')
    assert [p.line for p in found] == [2]
    assert "\n" not in str(found[0])


BAD_MACS = [
    "52:54:00:00:00",
    "52:54:00:00:00:0g",
    "01:00:5e:00:00:01",
    "00:00:00:00:00:00",
    "ff:ff:ff:ff:ff:ff",
    "",
]


@pytest.mark.parametrize("mac", BAD_MACS)
def test_a_bad_mac_is_refused(mistakes: Mistakes, mac: str) -> None:
    assert len(mistakes(f'nodes:\n  n0: {{mac: "{mac}", ip: 10.0.0.1}}\n')) == 1


BAD_IPS = [
    "10.0.0",
    "10.0.0.256",
    "10.0.0.1/24",
    "fe80::1",
    "224.0.0.1",
    "127.0.0.1",
    "0.0.0.0",
    "010.0.0.1",
    "7",
]


@pytest.mark.parametrize("ip", BAD_IPS)
def test_a_bad_ip_is_refused(mistakes: Mistakes, ip: str) -> None:
    assert len(mistakes(f'nodes:\n  n0: {{mac: "52:54:00:00:00:01", ip: "{ip}"}}\n')) == 1


BAD_RANGES = [
    "n[0-",
    "n[3-1]",
    "n[a-b]",
    "n[0-99999999]",
    "n[0-9][0-9999]x[0-99]",
    "'@ipmi'",
    "n[01-9]",
    "n[0-3]]",
    "n[]",
]


@pytest.mark.parametrize("key", BAD_RANGES)
def test_a_bad_range_is_refused_with_its_line(mistakes: Mistakes, key: str) -> None:
    found = mistakes(f'nodes:\n  {key}: {{mac: "52:54:00:00:00:01+", ip: 10.0.0.1+}}\n')
    assert [p.line for p in found] == [2]


def test_duplicates_name_the_first(mistakes: Mistakes) -> None:
    found = mistakes("""\
        defaults: {bmc: {driver: ipmi}}
        nodes:
          n0: {mac: "52:54:00:00:00:01", ip: 10.0.0.1, bmc: {address: 10.1.0.1}}
          n1: {mac: "52-54-00-00-00-01", ip: 10.0.0.2, bmc: {address: 10.1.0.2}}
          n2: {mac: "52:54:00:00:00:03", ip: 10.0.0.1, bmc: {address: 10.1.0.1}}
          n[1-3]: {mac: "52:54:00:00:00:10+", ip: 10.0.0.10+, bmc: {address: 10.1.0.10+}}
        """)
    assert [(p.line, p.message, p.hint) for p in found] == [
        (4, "MAC address 52:54:00:00:00:01 of node n1 is taken", "node n0 has it, line 3"),
        (5, "IP address 10.0.0.1 of node n2 is taken", "node n0 has it, line 3"),
        (5, "BMC address 10.1.0.1 of node n2 is taken", "node n0 has it, line 3"),
        (6, "node n1 is declared twice", "the first one is in line 4"),
        (6, "node n2 is declared twice", "the first one is in line 5"),
    ]


ONE = "driver: ipmi, address: 10.1.0.1"
OTHERS = [
    "driver: redfish, address: 10.1.0.1",
    "driver: redfish, address: 'https://10.1.0.1:443/'",
    "driver: redfish, address: 'http://10.1.0.1'",
    "driver: redfish, address: 10.1.0.1, system: /redfish/v1/Systems/1",
]


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("turned", [False, True])
def test_a_bmc_is_one_nodes_however_it_is_asked(
    mistakes: Mistakes, other: str, *, turned: bool
) -> None:
    """An administrator of some nodes would switch the machines of others."""
    first = other if turned else ONE
    second = ONE if turned else other
    found = mistakes(f"""\
        nodes:
          n0: {{mac: "52:54:00:00:00:01", ip: 10.0.0.1, bmc: {{{first}}}}}
          n1: {{mac: "52:54:00:00:00:02", ip: 10.0.0.2, bmc: {{{second}}}}}
        """)
    assert [(p.line, p.hint) for p in found] == [(3, "node n0 has it, line 2")]
    assert "BMC address" in found[0].message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("driver: redfish, address: BMC.x", "driver: redfish, address: 'https://bmc.x'"),
        ("driver: redfish, address: 'fd00::1'", "driver: redfish, address: 'https://[fd00:0::1]'"),
    ],
)
def test_one_address_is_written_in_many_ways(mistakes: Mistakes, first: str, second: str) -> None:
    found = mistakes(f"""\
        nodes:
          n0: {{mac: "52:54:00:00:00:01", ip: 10.0.0.1, bmc: {{{first}}}}}
          n1: {{mac: "52:54:00:00:00:02", ip: 10.0.0.2, bmc: {{{second}}}}}
        """)
    [mistake] = found
    assert "BMC address" in mistake.message and mistake.message.endswith("of node n1 is taken")


def test_bmcs_behind_one_address_have_ports_of_their_own() -> None:
    load("""\
        defaults: {bmc: {driver: ipmi}}
        nodes:
          n0: {mac: "52:54:00:00:00:01", ip: 10.0.0.1, bmc: {address: 10.1.0.1, port: 6230}}
          n1: {mac: "52:54:00:00:00:02", ip: 10.0.0.2, bmc: {address: 10.1.0.1, port: 6231}}
        """)


def test_one_bmc_may_serve_two_systems_but_not_one_twice(mistakes: Mistakes) -> None:
    text = """\
        defaults: {bmc: {driver: redfish}}
        nodes:
          n0: {mac: "52:54:00:00:00:01", ip: 10.0.0.1, bmc: {address: 10.1.0.1, system: /redfish/v1/Systems/1}}
          n1: {mac: "52:54:00:00:00:02", ip: 10.0.0.2, bmc: {address: 10.1.0.1, system: /redfish/v1/Systems/%s}}
        """
    load(text % "2")
    assert [p.line for p in mistakes(text % "1")] == [4]


def test_what_is_missing_is_said_once_for_a_whole_range(mistakes: Mistakes) -> None:
    found = mistakes("nodes:\n  c[0-99]:\n    groups: []\n")
    assert [(p.line, p.message) for p in found] == [
        (2, "node c[0-99] has no mac"),
        (2, "node c[0-99] has no ip"),
    ]


def test_a_node_without_a_card_says_where_it_is(mistakes: Mistakes) -> None:
    found = mistakes(
        "nodes:\n  a: {ip: 10.0.0.1}\n  b: {ip: 10.0.0.2, serial: SN-7}\n  c: {mac: x, ip: "
        "10.0.0.3, serial: SN-8}\n"
    )
    assert (
        [p.line for p in found] == [2, 4]
        and found[0].message == "node a has no mac"
        and "`place`" in found[0].hint
    )


def test_a_broken_value_is_not_reported_as_missing_too(mistakes: Mistakes) -> None:
    found = mistakes("nodes:\n  n0: {mac: x, ip: y, bmc: {driver: z, address: 'a b'}}\n")
    assert [p.message.split(":")[0] for p in found] == ["mac", "ip", "bmc.driver", "bmc.address"]


def test_a_value_for_one_node_cannot_stand_in_a_group(mistakes: Mistakes) -> None:
    found = mistakes("groups:\n  a: {ip: 10.0.0.1, bmc: {address: 10.0.0.2}}\n")
    assert [p.message for p in found] == [
        "group a: ip cannot stand here",
        "group a: bmc: address cannot stand here",
    ]


def test_unknown_section_and_wrong_shapes(mistakes: Mistakes) -> None:
    found = mistakes("node: {}\ndefaults: [a]\ngroups: 3\nnodes: [n0]\n")
    assert (found[0].line, found[0].hint) == (1, "did you mean nodes?")
    assert [p.line for p in found] == [1, 2, 3, 4]


def test_counting_up_stops_at_the_end_of_the_addresses(mistakes: Mistakes) -> None:
    found = mistakes('nodes:\n  n[0-3]: {mac: "fe:ff:ff:ff:ff:fe+", ip: 255.255.255.253+}\n')
    assert [p.message.split(":")[0] for p in found] == ["mac", "ip"]


PIECES = [
    *"\n\n\n  :,-[]{}&*!|>'\"#%@`+",
    "nodes:\n",
    "  n0:",
    "groups",
    "bmc",
    "a",
    "10.0.0.1+",
    "\t",
    "\0",
    "é",
]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        load(text, "x.yaml", {"debian"})
    except InventoryErrors as error:
        assert error.problems and all(p.line >= 1 and p.column >= 1 for p in error.problems)
