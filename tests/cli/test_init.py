"""`layercake init`: what is found out, what is asked, what is refused; the settings that it writes,
and where."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

import pytest

from layercake import guess
from layercake.cli.main import main
from layercake.guess import Choice, Given, Machine, choose
from layercake.head import settings as head_settings
from layercake.kraken.errors import InputError
from layercake.setup import initialise

LO = {"lo": (IPv4Interface("127.0.0.1/8"),)}
ONE = Machine(
    {**LO, "eno1": (IPv4Interface("10.1.0.1/16"),), "eno2": ()},
    {"eno1": "10.1.0.254"},
    ("9.9.9.9",),
)
TWO = Machine(
    {
        "eno1": (IPv4Interface("192.0.2.7/24"),),
        "eno2": (IPv4Interface("10.1.0.1/16"), IPv4Interface("10.2.0.1/16")),
    },
    {"eno1": "192.0.2.1"},
    ("9.9.9.9", "10.1.0.53"),
)
COMMAND = (sys.executable, "-m", "layercake.cli.main", "init", "--interface", "lo", "--no-boot")


class Person:
    """Answers as told, and remembers what was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), list[tuple[str, tuple[str, ...]]]()

    def __call__(self, question: str, answers: Sequence[str], usual: str) -> str:
        self.asked.append((question, tuple(answers)))
        return self.answers.pop(0) or usual


def test_where_there_is_one_network_nothing_is_asked() -> None:
    person = Person()
    found = choose(ONE, Given(), person)
    assert found == Choice("eno1", "10.1.0.1", 16, "10.1.0.254", ("9.9.9.9",))
    assert not person.asked


def test_what_cannot_be_found_out_is_asked() -> None:
    person = Person("eno2", "10.2.0.1", "10.2.0.254", "10.2.0.53, 9.9.9.9")
    found = choose(Machine(TWO.addresses, TWO.gateways), Given(), person)
    assert (found.interface, found.address, found.prefix, found.gateway, found.dns) == (
        "eno2",
        "10.2.0.1",
        16,
        "10.2.0.254",
        ("10.2.0.53", "9.9.9.9"),
    )
    question, answers = person.asked[0]
    assert question.endswith(
        "that the nodes are on (eno1 192.0.2.7/24, eno2 10.1.0.1/16)"
    ) and answers == ("eno1", "eno2")
    assert person.asked[1][1] == ("10.1.0.1", "10.2.0.1") and len(person.asked) == 4


def test_enter_takes_no_gateway_and_no_servers() -> None:
    found = choose(Machine(TWO.addresses), Given("eno1"), Person("", ""))
    assert (found.gateway, found.dns) == (None, ())


@pytest.mark.parametrize(
    ("machine", "given", "why", "hint"),
    [
        (
            TWO,
            Given(),
            "cannot choose the nodes' interface: there are eno1 192.0.2.7/24, eno2 10.1.0.1/16",
            "--interface NAME",
        ),
        (
            TWO,
            Given("eno2"),
            "cannot choose the head's address on eno2: there are 10.1.0.1, 10.2.0.1",
            "--address ADDRESS",
        ),
        (
            Machine(LO),
            Given(),
            "cannot choose the nodes' interface: none has an IPv4 address",
            "see `ip address`",
        ),
        (
            ONE,
            Given("eno2"),
            "cannot use interface eno2: it has no IPv4 address",
            "give it one, or say --address",
        ),
        (
            ONE,
            Given("eno9"),
            "cannot use interface 'eno9': there is no such interface",
            "see `ip link`",
        ),
        (
            ONE,
            Given(address="10.1.0"),
            "cannot use --address 10.1.0: it is not an IPv4 address",
            "",
        ),
        (ONE, Given(gateway="gw"), "cannot use --gateway gw: it is not an IPv4 address", ""),
        (ONE, Given(dns=("9.9.9.9", "")), "cannot use --dns : it is not an IPv4 address", ""),
    ],
)
def test_nobody_to_ask_is_an_error_that_names_the_option(
    machine: Machine, given: Given, why: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        choose(machine, given, None)
    assert (caught.value.message, caught.value.hint) == (why, hint)


def test_what_is_said_is_taken_and_none_is_none() -> None:
    found = choose(ONE, Given("eno2", "10.3.0.1", "none", ("none",)), None)
    assert found == Choice("eno2", "10.3.0.1", guess.USUAL_PREFIX, None, ())


def test_servers_that_nodes_cannot_reach_are_not_for_them() -> None:
    """Without a gateway only those of the nodes' own network are."""
    assert choose(TWO, Given("eno2", "10.1.0.1"), None).dns == ("10.1.0.53",)
    text = (
        "nameserver 127.0.0.53\n# nameserver 1.1.1.1\nnameserver ::1\nnameserver 9.9.9.9 "
        "\nnameserver\n"
    )
    assert guess.nameservers(text) == ("9.9.9.9",)


def test_the_machine_is_read() -> None:
    assert str(guess.read_machine().addresses["lo"][0]) == "127.0.0.1/8"


def test_the_settings_are_written_with_all_that_was_said(tmp_path: Path) -> None:
    data = tmp_path / "data"
    said: list[str] = []
    initialise(
        data,
        interface="lo",
        gateway="127.0.0.2",
        dns=["127.0.0.53"],
        boot=False,
        echo=said.append,
        options={"boot.tftp_port": 6969, "socket": "/run/x.sock"},
    )
    found = head_settings.load(data)
    assert (found.interface, found.address, found.prefix) == ("lo", "127.0.0.1", 8)
    assert (found.gateway, found.dns) == ("127.0.0.2", ["127.0.0.53"])
    assert found.socket == "/run/x.sock" and found.sections["boot"].tftp_port == 6969
    assert "  address: 127.0.0.1" in said and "  gateway: 127.0.0.2" in said
    before = {p: p.read_bytes() for p in data.rglob("*") if p.is_file()}
    initialise(
        data,
        interface="lo",
        gateway="127.0.0.2",
        boot=False,
        echo=said.append,
        options={"boot.tftp_port": 6969},
    )
    initialise(data, boot=False, echo=said.append)
    wrong: list[dict[str, Any]] = [
        {"gateway": "127.0.0.3"},
        {"dns": ["none"]},
        {"options": {"boot.tftp_port": 69}},
        {"options": {"boot.nothing": 1}},
    ]
    for other in wrong:
        with pytest.raises(InputError, match="is there already, and says"):
            initialise(data, boot=False, echo=said.append, **other)
    assert {p: p.read_bytes() for p in data.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("boot.tftp_prt=69", "boot.tftp_prt: unknown key"),
        ("boot", "it must be KEY=VALUE"),
        ("boot={", "it must be KEY=VALUE"),
        ("dns=[a]", "dns: 'a' is not an IPv4 address"),
        ("gateway.x=1", "gateway is no mapping"),
        ("gateway=10.1.0", "'10.1.0' is not an IPv4 address"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_and_nothing_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, why: str
) -> None:
    arguments = [
        "init",
        "--data-dir",
        str(tmp_path / "data"),
        "--interface",
        "lo",
        "--gateway",
        "127.0.0.2",
        "--no-boot",
    ]
    assert main([*arguments, "--set", option]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.fixture
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What stands for /var/lib/layercake; /etc/layercake is beside it."""
    monkeypatch.setattr(head_settings, "USUAL", tmp_path / "var")
    monkeypatch.setattr(head_settings, "ETC", tmp_path / "etc")
    return tmp_path / "var"


def test_the_usual_settings_are_in_etc(usual: Path) -> None:
    initialise(usual, interface="lo", boot=False, echo=lambda text: None)
    file = usual.parent / "etc" / "config.yaml"
    assert (usual / "config.yaml").readlink() == file and file.stat().st_mode & 0o777 == 0o600
    assert head_settings.load(usual).interface == "lo"


def test_settings_that_are_in_etc_before_the_data_directory_is_made_stay(usual: Path) -> None:
    file = usual.parent / "etc" / "config.yaml"
    file.parent.mkdir()
    file.write_text("interface: lo\naddress: 127.0.0.1\ngateway: 127.0.0.9\n")
    assert initialise(usual, boot=False, echo=lambda text: None).gateway == "127.0.0.9"
    assert "127.0.0.9" in file.read_text() and (usual / "config.yaml").readlink() == file
    with pytest.raises(InputError, match="is there already, and says"):
        initialise(usual, gateway="127.0.0.2", boot=False, echo=lambda text: None)


def test_settings_that_are_in_the_data_directory_stay_there(usual: Path) -> None:
    usual.mkdir()
    (usual / "config.yaml").write_text("interface: lo\naddress: 127.0.0.1\n")
    initialise(usual, boot=False, echo=lambda text: None)
    assert not (usual / "config.yaml").is_symlink() and not (usual.parent / "etc").exists()
    assert head_settings.place(usual) == usual / "config.yaml"


def test_a_terminal_is_asked_for_what_is_missing(tmp_path: Path) -> None:
    """lo has an address, no gateway, and no servers: two questions, of which Enter answers the
    first."""
    ours, theirs = pty.openpty()
    command = [*COMMAND, "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(theirs)
        os.write(ours, b"\n127.0.0.9\n")
        out, asked = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0, asked
    assert (
        "The nodes' default gateway [none]" in asked
        and "The nodes' DNS servers, with commas between them [none]" in asked
    )
    assert "  address: 127.0.0.1" in out
    found = head_settings.load(tmp_path / "data")
    assert (found.gateway, found.dns) == (None, ["127.0.0.9"])


def test_without_a_terminal_nothing_is_asked(tmp_path: Path) -> None:
    command = [*COMMAND, "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True
    )
    assert not done.stderr
    assert head_settings.load(tmp_path / "data").gateway is None
