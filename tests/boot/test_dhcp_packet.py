"""The DHCP codec against golden bytes, against scapy, and against noise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.dhcp import BOOTP, DHCP

from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpError, DhcpPacket, MessageType

CHADDR = bytes.fromhex("525400000101") + bytes(10)
COOKIE = bytes.fromhex("63825363")
# A DISCOVER as QEMU's iPXE sends it, cut down to what matters: 53, 57, 93, 60, 77 (no length byte),
# 175, 61, 97.
GOLDEN = (
    bytes.fromhex(
        "01010600 d90a0b0c 0004 0000 00000000 00000000 00000000 00000000".replace(" ", "")
    )
    + CHADDR
    + bytes(192)
    + COOKIE
    + bytes.fromhex("350101 390205c0 5d020000".replace(" ", ""))
    + b"\x3c\x20PXEClient:Arch:00000:UNDI:002001"
    + b"\x4d\x04iPXE"
    + bytes.fromhex("af06 b10101 eb0301".replace(" ", ""))
    + b"\x3d\x07\x01"
    + CHADDR[:6]
    + b"\x61\x11\0"
    + bytes(16)
    + b"\xff"
)


def area(options: bytes, *, file: bytes = b"", sname: bytes = b"") -> bytes:
    header = bytes.fromhex("01010600") + bytes(4 + 4 + 16) + CHADDR
    return header + sname.ljust(64, b"\0") + file.ljust(128, b"\0") + COOKIE + options


def test_golden_discover() -> None:
    packet = dhcp.parse(GOLDEN)
    assert (packet.op, packet.xid, packet.secs, packet.flags, packet.message_type) == (
        1,
        0xD90A0B0C,
        4,
        0,
        MessageType.DISCOVER,
    )
    assert packet.mac == CHADDR[:6]
    assert packet.options[dhcp.USER_CLASS] == b"iPXE"
    assert packet.options[dhcp.VENDOR_CLASS] == b"PXEClient:Arch:00000:UNDI:002001"
    assert packet.options[dhcp.CLIENT_ARCH] == b"\0\0"
    assert packet.options[dhcp.IPXE] == bytes.fromhex("b10101eb0301")


def test_golden_bytes_come_back() -> None:
    assert dhcp.build(dhcp.parse(GOLDEN)) == GOLDEN.ljust(300, b"\0")


def test_reads_what_scapy_writes() -> None:
    raw = bytes(
        BOOTP(
            op=1,
            xid=77,
            flags=0x8000,
            ciaddr="10.99.0.11",
            giaddr="10.98.0.1",
            chaddr=CHADDR,
            secs=9,
            hops=2,
        )
        / DHCP(
            options=[
                ("message-type", "request"),
                ("requested_addr", "10.99.0.11"),
                ("server_id", "10.99.0.1"),
                (93, b"\0\7"),
                "end",
            ]
        )
    )
    packet = dhcp.parse(raw)
    assert (packet.xid, packet.flags, packet.secs, packet.hops) == (77, dhcp.BROADCAST_FLAG, 9, 2)
    assert (packet.ciaddr, packet.giaddr) == (bytes([10, 99, 0, 11]), bytes([10, 98, 0, 1]))
    assert packet.options == {
        53: b"\3",
        50: bytes([10, 99, 0, 11]),
        54: bytes([10, 99, 0, 1]),
        93: b"\0\7",
    }


def test_scapy_reads_what_we_write() -> None:
    ours = DhcpPacket(
        dhcp.REPLY,
        5,
        CHADDR,
        {
            53: b"\2",
            54: bytes([10, 99, 0, 1]),
            51: bytes([0, 0, 14, 16]),
            12: b"n1",
            67: b"snponly.efi",
        },
        yiaddr=bytes([10, 99, 0, 11]),
        siaddr=bytes([10, 99, 0, 1]),
        file=b"snponly.efi",
        flags=0x8000,
    )
    theirs = BOOTP(dhcp.build(ours))
    assert (theirs.op, theirs.xid, theirs.yiaddr, theirs.siaddr) == (
        2,
        5,
        "10.99.0.11",
        "10.99.0.1",
    )
    assert theirs.file.rstrip(b"\0") == b"snponly.efi"
    options: dict[str, object] = dict(o[:2] for o in theirs[DHCP].options if isinstance(o, tuple))
    assert options["message-type"] == 2
    assert options["server_id"] == "10.99.0.1"
    assert options["lease_time"] == 3600
    assert options["hostname"] == b"n1"


def test_long_option_in_pieces_is_one() -> None:
    packet = DhcpPacket(2, 1, CHADDR, {53: b"\5", 43: bytes(range(256)) * 2})
    raw = dhcp.build(packet)
    assert raw[240:].count(b"\x2b\xff") == 2
    assert dhcp.parse(raw).options[43] == bytes(range(256)) * 2


def test_overloaded_fields_are_options_in_rfc_3396_order() -> None:
    raw = area(
        b"\x35\x01\x01\x34\x01\x03\x2b\x01a\xff",
        file=b"\x2b\x01b\xff",
        sname=b"\x2b\x01c\x0c\x02n1\xff",
    )
    packet = dhcp.parse(raw)
    assert packet.options == {53: b"\1", 43: b"abc", 12: b"n1"}
    assert (packet.file, packet.sname) == (b"", b"")


def test_file_and_sname_without_overload() -> None:
    packet = dhcp.parse(area(b"\x35\x01\x01\xff", file=b"pxelinux.0", sname=b"head"))
    assert (packet.file, packet.sname) == (b"pxelinux.0", b"head")


def test_replies_are_at_least_300_bytes() -> None:
    assert len(dhcp.build(DhcpPacket(2, 1, CHADDR, {53: b"\6"}))) == 300


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "length"),
        (GOLDEN[:239], "length"),
        (GOLDEN.ljust(5000, b"\0"), "length"),
        (GOLDEN.replace(COOKIE, b"\0\0\0\0"), "cookie"),
        (b"\1\1\x11" + GOLDEN[3:], "hardware address"),
        (area(b"\x35"), "no length"),
        (area(b"\x35\x05\x01"), "past the end"),
        (area(b"\x35\x02\x01\x01\xff"), "option 53"),
        (area(b"\x35\x01\x01\x35\x01\x01\xff"), "option 53"),
        (area(b"\x35\x00\xff"), "option 53"),
        (area(b"\x35\x01\x01\x36\x03\x0a\x63\x00\xff"), "option 54"),
        (area(b"\x35\x01\x01\x32\x00\xff"), "option 50"),
        (area(b"\x34\x01\x07\xff"), "option 52"),
        (area(b"\x34\x00\xff"), "option 52"),
        (area(b"\x34\x01\x01\xff", file=b"\x2b\xf0"), "file field"),
    ],
)
def test_malformed(raw: bytes, why: str) -> None:
    with pytest.raises(DhcpError, match=why):
        dhcp.parse(raw)


def test_a_field_that_does_not_fit_is_refused() -> None:
    with pytest.raises(DhcpError, match="too long"):
        dhcp.build(DhcpPacket(2, 1, CHADDR, {}, file=b"x" * 128))


@given(
    st.one_of(
        st.binary(max_size=600),
        st.binary(max_size=300).map(area),
        st.builds(
            lambda options, file, sname, overload: area(
                b"\x34\x01" + bytes([overload]) + options, file=file, sname=sname
            ),
            st.binary(max_size=100),
            st.binary(max_size=128),
            st.binary(max_size=64),
            st.integers(0, 4),
        ),
    )
)
def test_noise_raises_nothing_else(raw: bytes) -> None:
    try:
        packet = dhcp.parse(raw)
    except DhcpError:
        return
    again = (
        dhcp.parse(dhcp.build(packet)) if sum(map(len, packet.options.values())) < 3000 else packet
    )
    assert again.options == packet.options


@given(
    st.dictionaries(
        st.integers(1, 254).filter(lambda c: c not in (50, 52, 53, 54)),
        st.binary(max_size=700),
        max_size=4,
    ),
    st.integers(0, 2**32 - 1),
    st.binary(min_size=4, max_size=4),
)
def test_round_trip(options: dict[int, bytes], xid: int, address: bytes) -> None:
    packet = DhcpPacket(
        2, xid, CHADDR, options, yiaddr=address, giaddr=address, flags=0x8000, file=b"boot"
    )
    assert dhcp.parse(dhcp.build(packet)) == packet
