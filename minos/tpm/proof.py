"""What a node does when the head asks at the join who the machine is, and what it has booted.

    node  endorsement key, its certificate, attestation key
    head  a credential that only this TPM can open for this attestation key, a nonce, the registers
          that it wants to know
    node  a quote of them with SHA-256(nonce, credential) in it
    head  a pass for the join of this boot

A machine without a TPM that can be used says why, in the place of its keys: the head decides what
that means.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from layercake.kraken.errors import OperationFailed
from minos.tpm import log
from minos.tpm.commands import Tpm
from minos.tpm.device import Device, Transport
from minos.tpm.keys import AK_TEMPLATE, EK_KEPT, ENDORSEMENTS, Endorsement
from minos.tpm.wire import REGISTERS

Ask = Callable[[Mapping[str, Any]], Any]
"""Hands something to the head, and gives its answer. Raises LayercakeError."""
MOST_WHY = 300


def qualifying(nonce: bytes, credential: bytes) -> bytes:
    """What a quote has to hold: it is of now, and of the TPM that could open the credential."""
    return hashlib.sha256(b"layercake quote\0" + nonce + credential).digest()


def prove(
    ask: Ask, transport: Callable[[], Transport] = Device, events: Callable[[], bytes] = log.read
) -> str:
    """Shows the head who this machine is. Returns the pass for the join, "" from a head that gives
    none. Raises Refused if the head will not have it, and OperationFailed if it does not answer as
    agreed."""
    try:
        opened = transport()
    except OperationFailed as error:
        return _pass(ask({"missing": str(error)[:MOST_WHY]}))
    try:
        return _pass(ask(_quoted(Tpm(opened), ask, events)))
    finally:
        opened.close()


def fingerprint(transport: Callable[[], Transport] = Device) -> str:
    """SHA-256 of this machine's endorsement key, in hex; "" without a TPM that can be used."""
    try:
        opened = transport()
    except OperationFailed:
        return ""
    try:
        return hashlib.sha256(_endorsement(Tpm(opened)).public).hexdigest()
    except OperationFailed:
        return ""
    finally:
        opened.close()


class Named(NamedTuple):
    """What names a machine: the handle of its endorsement key, its public part, and the certificate
    of it, b"" without one."""

    kind: Endorsement
    handle: int
    public: bytes
    certificate: bytes


def _endorsement(tpm: Tpm) -> Named:
    """The endorsement key that the maker has vouched for; where he has for none, the first that the
    TPM can make."""
    certificates = ((kind, tpm.stored(kind.certificate)) for kind in ENDORSEMENTS)
    vouched = next(((kind, data) for kind, data in certificates if data.strip(b"\0\xff")), None)
    if vouched:
        return _named(tpm, *vouched)
    for kind in ENDORSEMENTS[:-1]:
        with contextlib.suppress(OperationFailed):
            return _named(tpm, kind, b"")
    return _named(tpm, ENDORSEMENTS[-1], b"")


def _named(tpm: Tpm, kind: Endorsement, certificate: bytes) -> Named:
    """A key of one kind: the one that is kept in the TPM, or made anew."""
    for handle in EK_KEPT:
        if (public := tpm.persistent_public(handle)).startswith(kind.fixed):
            return Named(kind, handle, public, certificate)
    return Named(kind, *tpm.key(kind.template), certificate)


def _quoted(tpm: Tpm, ask: Ask, events: Callable[[], bytes]) -> dict[str, Any]:
    """The last thing that is said: the quote, or why there is none."""
    try:
        named = _endorsement(tpm)
        attestation, its_public = tpm.key(AK_TEMPLATE)
        keys = {
            "ek": _text(named.public),
            "certificate": _text(named.certificate),
            "ak": _text(its_public),
            "maker": tpm.makers_word(),
        }
    except OperationFailed as error:
        return {"missing": str(error)[:MOST_WHY]}
    credential, secret, nonce, registers = _challenge(ask(keys))
    try:
        opened = tpm.activate(attestation, named.handle, credential, secret, named.kind)
        quote, signature = tpm.quote(attestation, qualifying(nonce, opened), registers)
        values = tpm.registers(registers)
    except OperationFailed as error:
        return {"missing": str(error)[:MOST_WHY]}
    return {
        "quote": _text(quote),
        "signature": _text(signature),
        "log": log.events(events(), registers),
        "registers": {str(number): value.hex() for number, value in values.items()},
    }


def _challenge(answer: Any) -> tuple[bytes, bytes, bytes, tuple[int, ...]]:
    try:
        credential, secret, nonce = (
            base64.b64decode(answer[key], validate=True)
            for key in ("credential", "secret", "nonce")
        )
        registers = tuple(
            sorted({number for number in map(int, answer["registers"]) if 0 <= number < REGISTERS})
        )
    except (KeyError, TypeError, ValueError) as error:
        raise OperationFailed(
            f"cannot join: the head's challenge is not as agreed: {error!r}"
        ) from None
    return credential, secret, nonce, registers


def _pass(answer: Any) -> str:
    token = answer.get("pass") if isinstance(answer, Mapping) else None
    return token if isinstance(token, str) else ""


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
