"""The event log: read from bytes that anybody may have written, and held against registers."""

from __future__ import annotations

import hashlib
import random

import pytest

from layercake.features.tpm.evidence import log as of_head
from layercake.features.tpm.evidence.log import Step
from minos.tpm import log
from tests.tpm.logs import head_of, log_of, number, step

A, B, C = (hashlib.sha256(word).digest() for word in (b"a", b"b", b"c"))
ALL = tuple(range(16))


def test_variables_boot_programs_and_texts_are_named() -> None:
    name = "SecureBoot"
    variable = bytes(16) + number(len(name), 8) + number(1, 8) + name.encode("utf-16-le") + b"\1"
    file = "\\EFI\\BOOT\\BOOTX64.EFI\0".encode("utf-16-le")
    path = bytes((4, 4)) + number(len(file) + 4, 2) + file + bytes((0x7F, 0xFF, 4, 0))
    program = bytes(24) + number(len(path), 8) + path
    data = head_of((4, 20), (0xB, 32)) + b"".join(
        (
            step(7, A, variable, log.EFI + 1),
            step(4, B, program, log.EFI + 3),
            step(9, C, b"grub.cfg\0"),
            step(4, A, bytes(24) + number(0, 8), log.EFI + 3),
            step(0, A, b"StartupLocality\0\3", log.NO_ACTION),
            step(5, A, b"x", 0x77),
        )
    )
    assert log.events(data, ALL) == [
        [7, "variable", A.hex(), "SecureBoot"],
        [4, "boot program", B.hex(), "\\EFI\\BOOT\\BOOTX64.EFI"],
        [9, "IPL", C.hex(), "grub.cfg"],
        [4, "boot program", A.hex(), "from memory"],
        [5, "type 0x77", A.hex(), "x"],
    ]
    assert [one[0] for one in log.events(data, (7, 9))] == [7, 9]


def test_a_log_that_is_cut_off_gives_what_was_read_until_then_and_nonsense_nothing() -> None:
    whole = log_of((4, A, b"one"), (4, B, b"two"))
    for end in range(len(whole)):
        assert len(log.events(whole[:end], ALL)) == (1 if end >= len(log_of((4, A, b"one"))) else 0)
    assert log.events(bytes(log.MOST_BYTES + 1), ALL) == []
    assert log.events(number(0) + number(3) + bytes(20) + number(4) + b"SHA1", ALL) == []
    empty = number(4) + number(0xD) + number(1) + number(0xB, 2) + number(0)
    assert log.events(head_of((0xB, 0)) + empty, ALL) == [], "a digest of no bytes"
    many = head_of((0xB, 32)) + step(4, A, b"x") * (log.MOST_EVENTS + 5)
    assert len(log.events(many, ALL)) == log.MOST_EVENTS
    assert log.events(head_of((0xB, 32)) + number(4) + number(0xD) + number(1 << 31), ALL) == []


def test_whatever_comes_is_read_to_an_end() -> None:
    dice = random.Random(7)
    whole = bytearray(log_of((4, A, b"one"), (7, B, b"two"), (9, C, b"three")))
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(dice.randrange(1, 6)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        for found in log.events(bytes(data), ALL):
            assert all(" " <= c <= "~" for c in found[3]) and len(found[3]) <= log.MOST_TEXT
        log.describe(log.EFI + dice.randrange(16), bytes(data[dice.randrange(60) :]))


def test_what_a_node_says_of_its_log_is_cleaned() -> None:
    said = [
        [4, "IPL", A.hex(), "vm\x1blinuz"],
        [99, "x", A.hex(), "y"],
        [4, "x", "zz", "y"],
        [True, "x", A.hex(), "y"],
        "nonsense",
        [4, "x", A.hex()],
        [4, 7, A.hex(), "y"],
        [4, "x", " " * 64, "y"],
    ]
    assert of_head.read(said) == (Step(4, "IPL", A.hex(), "vm?linuz"),)
    assert of_head.read("nonsense") == () and of_head.read(None) == ()


def test_what_is_of_one_boot_counts_by_its_place() -> None:
    def boot(
        token: bytes, kernel: bytes = B, name: str = "(tftp)/node/52:54.cfg"
    ) -> tuple[Step, ...]:
        return (
            Step(9, "IPL", hashlib.sha256(token).hexdigest(), name),
            Step(9, "IPL", kernel.hex(), "(http)/vmlinuz"),
            Step(
                9,
                "event tag",
                hashlib.sha256(token + b"2").hexdigest(),
                "LOADED_IMAGE::LoadOptions",
            ),
        )

    def mark(steps: tuple[Step, ...]) -> str:
        return of_head.lasting(steps, 9, of_head.replayed(steps, 9))

    first = mark(boot(b"token 1"))
    assert first and mark(boot(b"token 2")) == first
    assert mark(boot(b"token 2", kernel=C)) != first
    assert mark(boot(b"token 2", name="(tftp)/grub.cfg")) != first
    assert mark((*boot(b"token 2"), Step(9, "IPL", C.hex(), "(tftp)/node/a.cfg"))) != first
    assert of_head.lasting(boot(b"token 1"), 9, "00" * 32) == ""
    evil = boot(b"token 2", kernel=C)
    assert (
        of_head.difference(boot(b"token 1"), evil, 9, of_head.replayed(evil, 9))
        == "IPL (http)/vmlinuz is another one"
    )


@pytest.mark.parametrize(
    ("steps", "sent", "said"),
    [
        ([(A, "(tftp)/node/52:54.cfg"), (B, "LOADED_IMAGE::LoadOptions")], A, ""),
        ([(C, "(tftp)/node/52:54.cfg")], A, "has not read the configuration"),
        ([(A, "(tftp)/node/52:54.cfg"), (C, "(tftp)/node/x.cfg")], A, "has not read"),
        ([(C, "LOADED_IMAGE::LoadOptions")], A, "has not read the configuration"),
        ([(C, "LOADED_IMAGE::LoadOptions"), (B, "(tftp)/node/52:54.cfg")], A, "has not read"),
        ([], A, "has not read the configuration"),
        ([(A, "(tftp)/node/52:54.cfg")], None, "that the head has not sent"),
        ([(C, "LOADED_IMAGE::LoadOptions")], None, ""),
    ],
)
def test_grubs_configuration_is_the_one_that_was_sent(
    steps: list[tuple[bytes, str]], sent: bytes | None, said: str
) -> None:
    """The command line of the kernel is in it, with the token of one boot, so that no earlier value
    can be compared."""
    read = [Step(9, "IPL", digest.hex(), name) for digest, name in steps]
    found = of_head.configuration_trouble(read, "" if sent is None else sent.hex())
    assert said in found and bool(said) == bool(found)


def test_the_first_that_differs_is_named_and_a_log_that_lies_is_not_believed() -> None:
    was = (
        Step(4, "IPL", A.hex(), "iPXE"),
        Step(7, "variable", B.hex(), "db"),
        Step(4, "IPL", B.hex(), "vmlinuz"),
    )
    now = (Step(4, "IPL", A.hex(), "iPXE"), Step(4, "IPL", C.hex(), "vmlinuz"))
    value = of_head.replayed(now, 4)
    assert value == hashlib.sha256(hashlib.sha256(bytes(32) + A).digest() + C).hexdigest()
    assert of_head.difference(was, now, 4, value) == "IPL vmlinuz is another one"
    assert "not to be believed" in of_head.difference(was, now, 4, "00" * 32)
    assert "no event log of it" in of_head.difference(was, now, 7, value)
    assert (
        of_head.difference((), now, 4, value)
        == "there is no event log of before to hold it against"
    )
    more = (*now, Step(4, "IPL", A.hex(), "more"))
    assert of_head.difference(now, more, 4, of_head.replayed(more, 4)) == "now IPL more"
    assert of_head.difference(more, now, 4, value) == "IPL more is gone"
    started = (Step(0, "CRTM version", A.hex(), ""),)
    third = hashlib.sha256(bytes(31) + b"\3" + A).hexdigest()
    assert of_head.difference(started, started, 0, third) == "the event logs are the same"
