"""What comes from TPMs and of them: event logs of firmware, quotes and keys of nodes, and answers
to commands."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from layercake.features.tpm.evidence import certificate, credential, quote
from layercake.features.tpm.evidence import log as of_head
from layercake.kraken.errors import LayercakeError
from minos.tpm import log
from minos.tpm.commands import Tpm
from minos.tpm.keys import AK_FIXED, ENDORSEMENTS
from minos.tpm.wire import ATTEST_QUOTE, GENERATED, selection, sized, u16, u32
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.tpm.logs import head_of, number, step

ALL = tuple(range(24))
_NAME = "SecureBoot".encode("utf-16-le")
_PATH = bytes((4, 4, 8, 0)) + "a\0".encode("utf-16-le") + bytes((0x7F, 0xFF, 4, 0))
LOG = head_of((4, 20), (0xB, 32)) + b"".join(
    (
        step(7, bytes(32), bytes(16) + number(10, 8) + number(1, 8) + _NAME + b"\1", log.EFI + 1),
        step(4, bytes(32), bytes(24) + number(len(_PATH), 8) + _PATH, log.EFI + 3),
        step(9, bytes(32), b"grub.cfg\0"),
        step(9, bytes(32), bytes(8) + b"LOADED_IMAGE::LoadOptions\0", log.TAG),
    )
)
KEY = ENDORSEMENTS[0].fixed + sized(b"\xc1" * 256)
CURVED = ENDORSEMENTS[4].fixed + sized(bytes(47) + b"\1") + sized(bytes(48))
QUOTE = (
    u32(GENERATED)
    + u16(ATTEST_QUOTE)
    + sized(bytes(34))
    + sized(bytes(32))
    + bytes(17 + 8)
    + selection((4, 7))
    + sized(bytes(32))
)


@contextlib.contextmanager
def logs(directory: Path) -> Iterator[Target]:
    """A log gives events that can be shown, within bounds, and the head takes all of them."""

    def take(data: bytes) -> None:
        found = log.events(data, ALL)
        said = of_head.read(json.loads(json.dumps(found)))
        assert len(said) == len(found) <= log.MOST_EVENTS
        assert all(" " <= c <= "~" for one in said for c in one.text + one.kind)
        of_head.difference(said[1:], said, 9, of_head.lasting(said, 9, of_head.replayed(said, 9)))

    yield Target(
        mutate.data([LOG], (number(log.EFI + 1), number(log.EFI + 3), number(0xFFFFFFFF))), take, ()
    )


@contextlib.contextmanager
def quotes(directory: Path) -> Iterator[Target]:
    """Quotes, keys and certificates are read or refused."""
    point = AK_FIXED + sized(bytes(31) + b"\1") + sized(bytes(32))

    def take(data: bytes) -> None:
        which, rest = data[:1], data[1:]
        if which == b"q":
            assert all(one < 24 for one in quote.read(rest).registers)
        elif which == b"a":
            credential.attestation_key(rest)
        elif which == b"e":
            assert certificate.vouched(rest, credential.endorsement_key(KEY).key, ()).trouble
        else:
            credential.endorsement_key(rest)

    yield Target(
        mutate.data(
            [
                b"q" + QUOTE,
                b"a" + point,
                b"k" + KEY,
                b"k" + CURVED,
                b"e\x30\x82\x01\x00" + bytes(256),
            ]
        ),
        take,
        (LayercakeError, ValueError),
    )


class _Wire:
    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def exchange(self, command: bytes) -> bytes:
        return self._answer

    def close(self) -> None:
        """Nothing is open."""


@contextlib.contextmanager
def answers(directory: Path) -> Iterator[Target]:
    """A TPM that answers anything is read or refused, and never asked for ever."""
    usual = ENDORSEMENTS[0].template
    bodies = (
        u32(1) + selection((4, 7)) + u32(2) + sized(bytes(32)) * 2,
        u32(0x80000000) + u32(9) + sized(usual),
        u32(200) + sized(QUOTE) + bytes(70),
        sized(bytes(12) + u16(600)),
        u32(600) + sized(bytes(512)),
    )
    seeds = [u16(0x8001) + u32(10 + len(body)) + u32(0) + body for body in bodies] + [
        u16(0x8001) + u32(10) + u32(0x922)
    ]

    def take(data: bytes) -> None:
        tpm = Tpm(_Wire(data))
        for ask in (
            lambda: tpm.registers((4, 7)),
            tpm.makers_word,
            lambda: tpm.key(usual),
            lambda: tpm.stored(1),
            lambda: tpm.persistent_public(1),
            lambda: tpm.activate(1, 2, b"", b"", ENDORSEMENTS[4]),
            lambda: tpm.quote(1, b"", (4,)),
        ):
            with contextlib.suppress(LayercakeError):
                ask()

    yield Target(mutate.data(seeds, (u32(0), u16(600))), take, (LayercakeError,))
