"""Inventories: any text is an inventory or a list of mistakes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from layercake.kraken.errors import InputError
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.inventory.test_load import RACK
from tests.support.inventory import load

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(10)
)
SEEDS = [
    RACK,
    BOMB,
    'nodes:\n  c[00-15]: {mac: "52:54:00:00:01:00+", ip: 10.99.1.0+, bmc: {address: 10.98.2.0+}}\n',
    "nodes: {n[0-9]: {mac: &m 52:54:00:00:01:00+, ip: 10.0.0.1+, groups: [a], domains: {rack: "
    "r1}}}\ngroups: {a: {x: *m}}\n",
    "defaults: {}\ngroups:\nnodes: {}\n",
    "nodes:\n  n0: !!python/object:os.system {}\n",
    "? [a, {b: c}]\n: - !t 'x'\n",
    "---\n%YAML 1.1\n---\n- |\n  text\n- >-\n  text\n",
    "nodes: {n0: {mac: 1:2:3, ip: 0x7f000001, state: off, images: [a:b]}}",
]
WORDS = [
    w.encode()
    for w in (
        "&a ",
        "*a",
        "<<: *a",
        "!!set ",
        "? ",
        ": ",
        "- ",
        "---\n",
        "...\n",
        "{",
        "}",
        "[",
        "]",
        "\t",
        "\n  ",
        "# ",
        "| ",
        "\ufeff",
        "\x85",
        "\u2028",
        "\u00b2",
        "n[0-99999]",
        "n[1-3]!n[1-3]",
        "n1!n1",
        "52:54:00:00:00:0a+",
        "10.0.0.0+",
        "0o17",
        ".inf",
        "~",
        "bmc: ",
        "password: ",
        "{file: /etc/x}",
        "images: ",
        "verify_tls: ",
        '"\\ud800"',
        '"\\x00"',
        "1e999",
        "mac: ",
        "ip: ",
        "groups: ",
    )
]


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """The appliance's own keys, and no image that is known in each second input."""

    def take(data: bytes) -> None:
        text = data.decode("utf-8", "surrogatepass" if len(data) % 7 == 0 else "replace")
        load(text, "rack.yaml", {"debian"} if len(data) % 2 else None)

    yield Target(
        mutate.data([s.encode() for s in SEEDS], WORDS), take, (InputError, UnicodeDecodeError)
    )
