"""The credential of a node on the head's HTTP API."""

from __future__ import annotations

import hashlib
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layercake.kraken.errors import WireError
from layercake.kraken.wire import (
    EPOCH_HEADER,
    MOST_EPOCHS,
    TO_NODE,
    bearer,
    check_bearer,
    datagram_epoch,
    first_revision,
    heads_epoch,
    peek_bearer,
)

KEY = bytes(range(32))
NODE = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


def test_form_is_the_documented_one() -> None:
    tag = hashlib.blake2b(b"http" + (5).to_bytes(8, "big"), key=KEY, digest_size=16).hexdigest()
    assert bearer(KEY, NODE.bytes, 5) == f"Bearer {NODE}.5.{tag}"


@given(st.uuids(), st.integers(0, (1 << 64) - 1))
def test_genuine_is_accepted(node: uuid.UUID, session: int) -> None:
    header = bearer(KEY, node.bytes, session)
    assert check_bearer(header, KEY) == peek_bearer(header) == (node.bytes, session)


def test_of_another_session_or_key_is_refused() -> None:
    header = bearer(KEY, NODE.bytes, 5)
    with pytest.raises(WireError, match="tag"):
        check_bearer(header.replace(".5.", ".6."), KEY)
    with pytest.raises(WireError, match="tag"):
        check_bearer(header, KEY[::-1])


@settings(max_examples=300)
@given(
    st.one_of(
        st.text(max_size=80),
        st.text("0123456789abcdef.-", max_size=90).map(lambda t: "Bearer " + t),
    )
)
def test_noise_is_refused(text: str) -> None:
    with pytest.raises(WireError):
        check_bearer(text, KEY)


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h + "\n",
        lambda h: h.upper(),
        lambda h: h.replace(".5.", ".٥."),
        lambda h: h.replace(".5.", f".{1 << 64}."),
        lambda h: h.replace("Bearer ", "Basic "),
    ],
)
def test_near_misses_are_refused(change: object) -> None:
    with pytest.raises(WireError):
        check_bearer(change(bearer(KEY, NODE.bytes, 5)), KEY)  # type: ignore[operator]  # a lambda of the list above


def test_a_credential_for_one_purpose_is_worth_nothing_for_another() -> None:
    to_node = bearer(KEY, NODE.bytes, 5, TO_NODE)
    assert to_node != bearer(KEY, NODE.bytes, 5)
    assert check_bearer(to_node, KEY, TO_NODE) == (NODE.bytes, 5)
    with pytest.raises(WireError):
        check_bearer(to_node, KEY)
    with pytest.raises(WireError):
        check_bearer(bearer(KEY, NODE.bytes, 5), KEY, TO_NODE)


@pytest.mark.parametrize("session", [-1, 1 << 64])
def test_sessions_that_do_not_fit_are_refused(session: int) -> None:
    with pytest.raises(WireError):
        bearer(KEY, NODE.bytes, session)


def test_what_a_session_may_be_is_said_before_its_key_is_looked_up() -> None:
    tag = "0" * 32
    assert peek_bearer(f"Bearer {NODE}.{(1 << 64) - 1}.{tag}") == (NODE.bytes, (1 << 64) - 1)
    with pytest.raises(WireError) as caught:
        peek_bearer(f"Bearer {NODE}.{1 << 64}.{tag}")
    assert caught.value.message == (
        "cannot read credential: it is not of the form NODE.SESSION.TAG"
    )


def test_a_key_that_proves_nothing_makes_no_credential() -> None:
    with pytest.raises(WireError, match="the key has 15 bytes, at least 16 are needed"):
        bearer(b"k" * 15, NODE.bytes, 5)


def test_what_heads_and_nodes_of_other_versions_go_by() -> None:
    assert (EPOCH_HEADER, MOST_EPOCHS) == ("Layercake-Epoch", 2**31 - 1)
    assert datagram_epoch(1, 0) == 2**63 + 2**32
    assert datagram_epoch(MOST_EPOCHS, 2**32 - 1) == 2**64 - 1
    assert datagram_epoch(0, 2**64 - 1) == 2**63 - 1
    for epoch in (-1, MOST_EPOCHS + 1):
        with pytest.raises(WireError):
            datagram_epoch(epoch, 0)
    assert heads_epoch(2**64 - 1) == MOST_EPOCHS and heads_epoch(2**63 - 1) == 0
    assert first_revision(datagram_epoch(3, 9)) == 3 * 2**20
