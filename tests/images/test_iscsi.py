"""iSCSI: descriptions, the login to a real target (tgt), and what is made of hostile ones.
tests/metal has the kernel's part."""

from __future__ import annotations

import hashlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from imageapi.node import modules
from imageapi.node.attach import iscsi, iscsi_kernel
from imageapi.node.attach.iscsi_login import (
    RECEIVE,
    Account,
    Login,
    Session,
    binary,
    parse_text,
    response,
    text,
)
from imageapi.node.attach.iscsi_sessions import IscsiSessions
from imageapi.spec.container import parse_container
from imageapi.spec.objects import parse_attach, parse_mount, secrets_of, shown
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed, Unreachable
from layercake.kraken.events import EventKind
from tests.support.targets import IQN, Target, linked

UNIT = {"kind": "iscsi", "portal": "10.0.0.1", "target": IQN, "lun": 1}
CHAP = {**UNIT, "user": "node", "secret": "array-1"}
SECRET = "a-long-secret-1"


def test_a_description_names_its_secret_and_does_not_hold_it() -> None:
    assert (
        parse_attach(CHAP)
        == {**CHAP, "portal": "10.0.0.1:3260"}
        == parse_attach(parse_attach(CHAP))
    )
    assert "user" not in parse_attach(UNIT)
    mounts = [
        {"target": "/d", "kind": "attach", "attach": CHAP, "fstype": "ext4"},
        {
            "target": "/e",
            "kind": "overlay",
            "lower": [{"kind": "attach", "attach": {**CHAP, "secret": "array-2"}}],
        },
        {"target": "/f", "kind": "attach", "attach": UNIT},
        {"target": "/g", "kind": "tmpfs"},
    ]
    container = parse_container({"mounts": mounts}).to_wire()
    assert secrets_of(container) == {"array-1", "array-2"} and secrets_of({}) == set()
    assert shown(container["mounts"][0]) == f"iscsi {IQN}"


def test_what_other_nodes_see_too_is_not_written_to_unless_that_is_said() -> None:
    mount = {"kind": "attach", "attach": UNIT, "fstype": "ext4"}
    assert parse_mount(mount)["readonly"] is True
    assert parse_mount({**mount, "readonly": False})["readonly"] is False
    assert (
        parse_mount({"kind": "attach", "attach": {"kind": "nbd", "host": "h"}})["readonly"] is False
    )


@pytest.mark.parametrize(
    "change",
    [
        {"user": None},
        {"secret": None},
        {"user": "a b"},
        {"user": ""},
        {"secret": "../bmc"},
        {"secret": ".x"},
        {"secret": "x/y"},
        {"secret": {"file": "x"}},
        {"password": "x"},
        {"portal": "h h"},
        {"portal": "h:0"},
        {"target": "iqn.x y"},
        {"lun": -1},
        {"lun": 16384},
    ],
)
def test_hostile_descriptions_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        parse_attach({**CHAP, **change})


# ---- a real target
# -----


@pytest.fixture(scope="module")
def portal() -> tuple[str, int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return "127.0.0.1", int(listener.getsockname()[1])


@pytest.fixture(scope="module", params=["", "node"])
def target(
    request: pytest.FixtureRequest,
    portal: tuple[str, int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    unit = tmp_path_factory.mktemp("iscsi") / "unit"
    unit.write_bytes(bytes(1 << 20))
    found = Target(
        f"127.0.0.1:{portal[1]}", [unit], user=request.param, secret=SECRET if request.param else ""
    )
    try:
        found.start()
        yield request.param
    finally:
        found.stop()


@pytest.mark.root
def test_a_real_target_lets_who_may_in_and_nobody_else(
    target: str, portal: tuple[str, int]
) -> None:
    with linked(portal) as link:
        agreed = Login(
            Account(iscsi.initiator(), IQN, target, SECRET.encode() if target else b""),
            link.exchange,
        ).run()
        assert (
            agreed.values["TargetPortalGroupTag"] == "1"
            and int(agreed.values["MaxRecvDataSegmentLength"]) >= 512
        )
    for account, why in (
        (
            Account("iqn.2026-11.org:x", f"{IQN}x", target, SECRET.encode()),
            "no such target|does not ask for CHAP",
        ),
        (
            Account("iqn.2026-11.org:x", IQN, "node", b"wrong-secret-99"),
            "refuses user node|does not ask for CHAP",
        ),
        *([(Account("iqn.2026-11.org:x", IQN), "refuses who has no user")] if target else []),
    ):
        with linked(portal) as link, pytest.raises(OperationFailed, match=why) as failed:
            Login(account, link.exchange).run()
        assert SECRET not in str(failed.value) and "wrong-secret" not in str(failed.value)


# ---- answers that are none
# -----


def answer(
    pairs: dict[str, str], flags: int, status: int = 0, *, opcode: int = 0x23
) -> tuple[bytes, bytes]:
    data = text(pairs)
    header = struct.pack(
        ">BBBBB3s6sHIIIII",
        opcode,
        flags,
        0,
        0,
        0,
        len(data).to_bytes(3, "big"),
        b"",
        0,
        0,
        0,
        5,
        0,
        0,
    )
    return header + struct.pack(">H10x", status), data


ACCOUNT = Account("iqn.2026-11.org:x", IQN, "node", SECRET.encode())
CHALLENGE = {"CHAP_A": "5", "CHAP_I": "7", "CHAP_C": "0x0102"}


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([answer({"AuthMethod": "None"}, 0x81)], "does not ask for CHAP, and a user is given"),
        (
            [answer({"AuthMethod": "CHAP"}, 0), answer({**CHALLENGE, "CHAP_A": "9"}, 0)],
            "CHAP by MD5 or SHA-256",
        ),
        (
            [
                answer({"AuthMethod": "CHAP"}, 0),
                answer({**CHALLENGE, "CHAP_C": "0x" + "00" * 2000}, 0),
            ],
            "CHAP by MD5",
        ),
        (
            [answer({"AuthMethod": "CHAP"}, 0), answer({**CHALLENGE, "CHAP_I": "999"}, 0)],
            "CHAP by MD5",
        ),
        ([answer({"AuthMethod": "CHAP"}, 0), answer({"CHAP_A": "5"}, 0)], "CHAP by MD5"),
        ([answer({}, 0x40)] * 40, "does not come to an end"),
        ([answer({}, 0, opcode=0x21)], "none to a login"),
        ([(b"short", b"")], "none to a login"),
        ([answer({}, 0, 0x0101)], "has moved to another portal"),
        ([answer({}, 0, 0x0202)], "may not use it"),
        ([answer({}, 0, 0x02FF)], "refuses"),
        (
            [
                answer({"AuthMethod": "CHAP"}, 0),
                answer(CHALLENGE, 0),
                answer({}, 0x81),
                answer({"MaxBurstLength": "9" * 30}, 0x87),
            ],
            "says MaxBurstLength",
        ),
        (
            [
                answer({"AuthMethod": "CHAP"}, 0),
                answer(CHALLENGE, 0),
                answer({}, 0x81),
                answer({"MaxRecvDataSegmentLength": "\u0661024"}, 0x87),
            ],
            "says MaxRecvDataSegmentLength",
        ),
    ],
)
def test_targets_that_do_not_keep_to_the_protocol(
    answers: list[tuple[bytes, bytes]], why: str
) -> None:
    given = iter(answers)
    with pytest.raises(OperationFailed, match=why):
        Login(ACCOUNT, lambda header, data: next(given)).run()


def test_a_target_that_is_out_of_service_is_tried_again() -> None:
    with pytest.raises(Unreachable, match="out of service"):
        Login(ACCOUNT, lambda header, data: answer({}, 0, 0x0301)).run()


def test_a_login_word_for_word() -> None:
    sent: list[tuple[bytes, dict[str, str]]] = []
    answers = iter(
        [
            answer({"AuthMethod": "CHAP"}, 0),
            answer(CHALLENGE, 0x40),
            answer({"x": "y"}, 0),
            answer({}, 0x81),
            answer({"InitialR2T": "Yes", "MaxRecvDataSegmentLength": "65536"}, 0x04),
            answer({}, 0x87),
        ]
    )

    def exchange(header: bytes, data: bytes) -> tuple[bytes, bytes]:
        sent.append((header, parse_text(data)))
        return next(answers)

    agreed = Login(ACCOUNT, exchange).run()
    assert [header[1] for header, _ in sent] == [0x00, 0x00, 0x00, 0x81, 0x87, 0x87]
    assert all(len(header) == 48 and header[0] == 0x43 for header, _ in sent)
    assert sent[3][1] == {
        "CHAP_N": "node",
        "CHAP_R": "0x" + hashlib.md5(b"\7" + SECRET.encode() + b"\1\2").hexdigest(),  # noqa: S324
    }
    assert sent[5][1] == {} and agreed.status_number == 6
    values = dict(iscsi.parameters(agreed))
    assert (
        values[iscsi_kernel.INITIAL_R2T_EN] == "1"
        and values[iscsi_kernel.MAX_XMIT_DLENGTH] == "65536"
    )
    assert values[iscsi_kernel.MAX_RECV_DLENGTH] == str(RECEIVE) and SECRET not in repr(values)


def test_chap_takes_hex_and_base64_and_sha256() -> None:
    assert binary("0x0102") == binary("0X102") == binary("0bAQI=") == b"\1\2"
    for bad in ("", "0102", "0xzz", "0b***"):
        with pytest.raises(ValueError):
            binary(bad)
    challenge = {"CHAP_A": "7", "CHAP_I": "0x7", "CHAP_C": "0bAQI="}
    assert (
        response(challenge, ACCOUNT) == hashlib.sha256(b"\7" + SECRET.encode() + b"\1\2").digest()
    )


def test_without_a_kernel_that_has_it_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the kernel here has: modprobe is asked for a module that none has."""
    monkeypatch.setitem(modules.GROUPS, "iscsi", ("no_such_initiator",))
    monkeypatch.setattr(iscsi_kernel, "TRANSPORT", tmp_path / "tcp")
    monkeypatch.setattr(iscsi, "SESSIONS", tmp_path / "sessions")
    with pytest.raises(LayercakeError, match="cannot load kernel modules no_such_initiator"):
        iscsi.attach(parse_attach(UNIT), lambda spec: b"")
    iscsi.detach(parse_attach(UNIT))
    assert iscsi.sessions() == [] and isinstance(Session({}, 0), Session)


def test_a_target_that_is_away_is_told_of_once_and_its_return_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states = iter(["LOGGED_IN", "FAILED", "FAILED", "FREE", "LOGGED_IN", "FAILED"])
    away, told, tried = [True, True, False, False], list[tuple[str, str]](), list[str]()

    def of(target: str) -> iscsi.KernelSession:
        return iscsi.KernelSession(1, target, next(states), 3)

    def revive(spec: dict[str, Any], secret: iscsi.Key) -> None:
        tried.append(spec["target"])
        if away.pop(0):
            raise Unreachable("its portal does not answer")

    def event(kind: EventKind, text: str, severity: object = None, **data: Any) -> None:
        told.append((kind.name, data["target"]))

    monkeypatch.setattr(iscsi, "of", of)
    monkeypatch.setattr(iscsi, "revive", revive)
    keeper = IscsiSessions(lambda spec: b"", event)
    for _ in range(6):
        keeper.relogin(parse_attach(UNIT))
    assert (
        told == [("image.device-lost", IQN), ("image.device-back", IQN), ("image.device-back", IQN)]
        and len(tried) == 4
    )
