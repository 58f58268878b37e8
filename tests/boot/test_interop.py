"""The service on a real wire (two network namespaces), against foreign clients: dhclient, atftp,
tftpy, curl, the kernel, scapy."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import patience
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet

pytestmark = [pytest.mark.root, pytest.mark.waits]

NODE = "6b1f2a3c-0000-4000-8000-000000000001"
MAC = "52:54:00:00:01:01"
STRANGER = "52:54:00:00:01:99"
PXE_BIOS = [("vendor_class_id", b"PXEClient:Arch:00000:UNDI:002001"), (93, b"\0\0")]
PXE_UEFI = [("vendor_class_id", b"PXEClient:Arch:00007:UNDI:003001"), (93, b"\0\7")]
HTTP_UEFI = [("vendor_class_id", b"HTTPClient:Arch:00016:UNDI:003001"), (93, b"\0\x10")]
IPXE = [*PXE_BIOS, (77, b"iPXE"), (175, b"\xb1\1\1")]


def frame(
    kind: str, options: list[Any], *, mac: str = MAC, flags: int = 0, xid: int = 99, **bootp: Any
) -> bytes:
    chaddr = bytes.fromhex(mac.replace(":", ""))
    return bytes(
        Ether(src=mac, dst="ff:ff:ff:ff:ff:ff")
        / IP(src="0.0.0.0", dst="255.255.255.255")
        / UDP(sport=68, dport=67)
        / BOOTP(op=1, chaddr=chaddr, xid=xid, flags=flags, **bootp)
        / DHCP(options=[("message-type", kind), *options, "end"])
    )


def is_reply(data: bytes) -> bool:
    packet = Ether(data)
    return bool(packet.haslayer(BOOTP) and packet[BOOTP].op == 2)


def options_of(packet: Packet) -> dict[Any, Any]:
    return {o[0]: o[1] for o in packet[DHCP].options if isinstance(o, tuple)}


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + patience(seconds)
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_the_reply_to_a_client_without_an_address_is_a_sound_frame(
    running: Any, packets: Any
) -> None:
    data = packets.exchange(frame("discover", []), is_reply)
    assert data is not None
    reply = Ether(data)
    assert (reply.dst, reply[IP].src, reply[IP].dst, reply[UDP].sport, reply[UDP].dport) == (
        MAC,
        "10.99.0.1",
        "10.99.0.11",
        67,
        68,
    )
    checksums = reply[IP].chksum, reply[UDP].chksum
    del reply[IP].chksum, reply[UDP].chksum
    again = Ether(bytes(reply))
    assert (again[IP].chksum, again[UDP].chksum) == checksums
    assert reply[BOOTP].yiaddr == "10.99.0.11"


def test_the_broadcast_flag_is_respected(running: Any, packets: Any) -> None:
    data = packets.exchange(frame("discover", [], flags=0x8000), is_reply)
    assert data is not None
    assert (Ether(data).dst, Ether(data)[IP].dst, Ether(data)[IP].src) == (
        "ff:ff:ff:ff:ff:ff",
        "255.255.255.255",
        "10.99.0.1",
    )


def test_dhclient_gets_its_address_and_renews(running: Any, wire: Any, tmp_path: Path) -> None:
    """The lease is an hour; the client is told to renew after 2 s. It is given its address by hand:
    -sf /bin/true gives none."""
    wire.give_address()
    conf, leases = tmp_path / "dhclient.conf", tmp_path / "leases"
    conf.write_text(
        "initial-delay 0;\nsupersede dhcp-renewal-time 2;\nrequest subnet-mask, routers, "
        "host-name;\n"
    )
    leases.touch()
    client = subprocess.Popen(
        [
            "ip",
            "netns",
            "exec",
            wire.client,
            "dhclient",
            "-4",
            "-d",
            "-sf",
            "/bin/true",
            "-cf",
            str(conf),
            "-lf",
            str(leases),
            "-pf",
            str(tmp_path / "pid"),
            wire.client_if,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        wait_until(lambda: running.stats().get("dhcp.acked", 0) >= 2, 40)
        wait_until(lambda: leases.read_text().count("lease {") >= 2)
    finally:
        client.terminate()
        _, log = client.communicate(timeout=60)
    assert running.stats()["dhcp.offered"] == 1, log.decode()
    text = leases.read_text()
    assert "fixed-address 10.99.0.11;" in text
    assert "option routers 10.99.0.254;" in text
    assert 'option host-name "n1";' in text
    assert "option dhcp-server-identifier 10.99.0.1;" in text


def test_dhclient_of_a_stranger_gets_nothing(running: Any, wire: Any, tmp_path: Path) -> None:
    subprocess.run(
        ["ip", "-n", wire.client, "link", "set", wire.client_if, "address", STRANGER], check=True
    )
    conf = tmp_path / "dhclient.conf"
    conf.write_text("timeout 3;\n")
    (tmp_path / "leases").touch()
    done = wire.run(
        "dhclient",
        "-4",
        "-1",
        "-d",
        "-sf",
        "/bin/true",
        "-cf",
        str(conf),
        "-lf",
        str(tmp_path / "leases"),
        "-pf",
        str(tmp_path / "pid"),
        wire.client_if,
    )
    assert done.returncode == 2
    assert [(e[0], e[1], e[4]["mac"]) for e in running.link.events] == [
        ("", "dhcp.unknown-mac", STRANGER)
    ]


@pytest.mark.parametrize(
    ("options", "file", "more"),
    [
        (PXE_BIOS, b"undionly.kpxe", {"tftp_server_name": b"10.99.0.1"}),
        (PXE_UEFI, b"snponly.efi", {"tftp_server_name": b"10.99.0.1"}),
        (HTTP_UEFI, b"http://10.99.0.1:8080/boot/snponly.efi", {"vendor_class_id": b"HTTPClient"}),
        (IPXE, b"http://10.99.0.1:8080/boot/52-54-00-00-01-01", {}),
    ],
)
def test_firmware_of_each_architecture(
    running: Any, packets: Any, options: list[Any], file: bytes, more: dict[str, bytes]
) -> None:
    running.arm()
    offer = packets.exchange(frame("discover", options), is_reply)
    assert offer is not None
    chosen = [*options, ("requested_addr", "10.99.0.11"), ("server_id", "10.99.0.1")]
    ack = packets.exchange(frame("request", chosen), is_reply)
    assert ack is not None
    for data, kind in ((offer, 2), (ack, 5)):
        reply = Ether(data)
        found = options_of(reply)
        assert found["message-type"] == kind
        assert reply[BOOTP].file.rstrip(b"\0") == file
        assert more.items() <= found.items()
    assert {"boot.discover-seen", "boot.offer-sent"} <= set(running.kinds())


def test_firmware_of_a_node_that_is_not_armed_hears_nothing(running: Any, packets: Any) -> None:
    assert packets.exchange(frame("discover", PXE_UEFI), is_reply) is None
    assert running.kinds() == ["boot.ignored"]


def test_a_relayed_packet_is_answered_to_the_relay(running: Any, wire: Any) -> None:
    wire.give_address()

    def relay() -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("10.99.0.11", 67))
            sock.settimeout(5)
            request = frame(
                "discover", [("relay_agent_information", b"\1\4swp1")], giaddr="10.99.0.11", hops=1
            )
            sock.sendto(bytes(Ether(request)[BOOTP]), ("10.99.0.1", 67))
            return sock.recv(2048)

    reply = BOOTP(wire.there(relay))
    assert (reply.yiaddr, reply.giaddr) == ("10.99.0.11", "10.99.0.11")
    assert bytes(reply).rstrip(b"\0").endswith(b"\x52\x06\1\4swp1\xff")


def test_defect_7_renewals_answered_on_the_wire(running: Any, wire: Any) -> None:
    wire.give_address()

    def renew() -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("10.99.0.11", 68))
            sock.settimeout(5)
            sock.sendto(
                bytes(Ether(frame("request", [], ciaddr="10.99.0.11"))[BOOTP]), ("10.99.0.1", 67)
            )
            return sock.recv(2048)

    reply = BOOTP(wire.there(renew))
    assert (options_of(reply)["message-type"], reply.yiaddr, reply.ciaddr) == (
        5,
        "10.99.0.11",
        "10.99.0.11",
    )


@pytest.mark.parametrize("name", ["snponly.efi", "undionly.kpxe"])
@pytest.mark.parametrize(
    "words",
    [
        ["atftp", "--get", "-r", "NAME", "-l", "OUT", "10.99.0.1"],
        [
            "atftp",
            "--option",
            "blksize 1468",
            "--option",
            "windowsize 8",
            "--get",
            "-r",
            "NAME",
            "-l",
            "OUT",
            "10.99.0.1",
        ],
        ["curl", "-sS", "-o", "OUT", "tftp://10.99.0.1/NAME"],
        ["curl", "-sS", "--tftp-blksize", "1468", "-o", "OUT", "tftp://10.99.0.1/NAME"],
        ["curl", "-sS", "--tftp-no-options", "-o", "OUT", "tftp://10.99.0.1/NAME"],
    ],
)
def test_tftp_clients_get_the_same_bytes(
    running: Any, wire: Any, files: dict[str, Any], tmp_path: Path, words: list[str], name: str
) -> None:
    wire.give_address()
    running.arm()
    out = tmp_path / "out"
    done = wire.run(*[w.replace("NAME", name).replace("OUT", str(out)) for w in words])
    assert done.returncode == 0, done.stderr.decode()
    want = Path(files["ipxe_dir"], name).read_bytes()
    assert out.read_bytes() == want
    wait_until(lambda: "boot.nbp-sent" in running.kinds(), 5)
    sent = next(e for e in running.link.events if e[1] == "boot.nbp-sent")
    assert (sent[0], sent[4]["file"], sent[4]["bytes"]) == (NODE, name, len(want))


@pytest.mark.parametrize("mtu", ["1500", "1000"])
def test_windows_arrive_whole_also_where_the_kernel_cannot_cut_them(
    running: Any, wire: Any, files: dict[str, Any], tmp_path: Path, mtu: str
) -> None:
    """A window goes to the kernel in one piece; a path with a smaller MTU takes none of that."""
    for name, interface in ((wire.head, wire.head_if), (wire.client, wire.client_if)):
        wire.ip("-n", name, "link", "set", interface, "mtu", mtu)
    wire.give_address()
    running.arm()
    got = tmp_path / "got"
    assert (
        wire.run(
            "atftp",
            "--option",
            "blksize 1468",
            "--option",
            "windowsize 16",
            "--get",
            "-r",
            "snponly.efi",
            "-l",
            str(got),
            "10.99.0.1",
        ).returncode
        == 0
    )
    assert got.read_bytes() == Path(files["ipxe_dir"], "snponly.efi").read_bytes()
    assert running.stats()["tftp.send-failed"] == 0


def test_tftpy_gets_the_same_bytes(
    running: Any, wire: Any, files: dict[str, Any], tmp_path: Path
) -> None:
    import tftpy

    wire.give_address()
    running.arm()
    out = tmp_path / "out"

    def download() -> bool:
        tftpy.TftpClient("10.99.0.1", 69, {"blksize": 1400}).download("snponly.efi", str(out))
        return True

    assert wire.there(download)
    assert out.read_bytes() == Path(files["ipxe_dir"], "snponly.efi").read_bytes()


def test_tftp_refusals(running: Any, wire: Any, tmp_path: Path) -> None:
    wire.give_address()

    def get(name: str) -> int:
        return int(
            wire.run(
                "curl", "-sS", "-o", str(tmp_path / "out"), f"tftp://10.99.0.1/{name}"
            ).returncode
        )

    assert get("snponly.efi") == 69  # access violation: not armed
    running.arm()
    assert get("snponly.efi") == 0
    assert get("vmlinuz") == 68  # no such file
    assert get("..%2f..%2fetc%2fpasswd") == 68


def test_http_over_the_wire(
    running: Any, wire: Any, packets: Any, files: dict[str, Any], tmp_path: Path
) -> None:
    wire.give_address()
    running.arm()
    base = "http://10.99.0.1:8080/boot"
    assert wire.run("curl", "-sSf", f"{base}/52-54-00-00-01-01").returncode == 22, (
        "it has not asked by DHCP"
    )
    assert packets.exchange(frame("discover", IPXE), is_reply) is not None
    script = wire.run("curl", "-sSf", f"{base}/52-54-00-00-01-01").stdout
    assert script.startswith(b"#!ipxe\n")
    for name in ("vmlinuz", "minos.img"):
        assert (
            wire.run("curl", "-sSf", f"{base}/{name}").stdout
            == Path(files["boot_dir"], name).read_bytes()
        )
    wait_until(
        lambda: len(running.kinds()) >= 6, 15
    )  # told once the last byte is on its way: the client may be quicker
    assert running.kinds() == [
        "boot.script-refused",
        "boot.discover-seen",
        "boot.offer-sent",
        "boot.script-sent",
        "boot.kernel-sent",
        "boot.initrd-sent",
    ]
    assert (
        wire.run(
            "curl", "-sSf", "--interface", "10.99.0.11", f"{base}/52-54-00-00-01-02"
        ).returncode
        == 22
    )


def test_the_kernel_takes_an_address_from_our_advertisement(running: Any, wire: Any) -> None:
    wait_until(
        lambda: (
            b"inet6 fd99::5054:ff:fe00:101/64"
            in wire.run("ip", "-6", "addr", "show", "dev", wire.client_if).stdout
        ),
        15,
    )
    assert wire.run("ip", "-6", "route", "show", "default").stdout == b""  # we are no router


def test_solicitations_are_answered_at_once(running: Any, wire: Any, packets: Any) -> None:
    """Whatever the periodic ones do: each solicitation has its answer, and within the 3 s that
    `exchange` waits."""
    from scapy.layers.inet6 import ICMPv6ND_RA, ICMPv6ND_RS, IPv6

    solicitation = bytes(
        Ether(src=MAC, dst="33:33:00:00:00:02")
        / IPv6(src="::", dst="ff02::2", hlim=255)
        / ICMPv6ND_RS()
    )

    def for_all(
        raw: bytes,
    ) -> bool:  # the kernel at this end asks too, and is answered at its own address
        return ICMPv6ND_RA in Ether(raw) and Ether(raw)[IPv6].dst == "ff02::1"

    wait_until(lambda: running.stats().get("ra.sent", 0) >= 1)
    for _ in range(3):
        data = packets.exchange(solicitation, for_all)
        assert data is not None
        assert Ether(data)[IPv6].hlim == 255


def noise(seed: int) -> list[bytes]:
    """DHCP and TFTP payloads, from random bytes to ones that are nearly right."""
    rng = random.Random(seed)
    good = bytes(
        Ether(
            frame(
                "discover", [*PXE_UEFI, (77, b"\4iPXE"), ("relay_agent_information", b"\1\4swp1")]
            )
        )[BOOTP]
    )
    request = b"\0\1snponly.efi\0octet\0blksize\x001468\0windowsize\x008\0"
    made = [
        b"",
        b"\0",
        b"\0\1",
        b"\0\1\0\0",
        b"\0\1a\0octet\0blksize\0abc\0",
        b"\0\1\xff\xfe\0octet\0",
        b"\0\4\0\1",
        b"\0\5\0\0",
        good[:240],
    ]
    for _ in range(1500):
        base = bytearray(rng.choice((good, request, rng.randbytes(rng.randrange(600)))))
        for _ in range(rng.randrange(1, 8)):
            if base:
                base[rng.randrange(len(base))] = rng.randrange(256)
        made.append(bytes(base[: rng.randrange(len(base) + 1)] if rng.random() < 0.4 else base))
    return made


def test_a_barrage_of_malformed_packets_leaves_the_server_answering(
    running: Any, wire: Any, packets: Any
) -> None:
    wire.give_address()
    running.arm()

    def shoot() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("10.99.0.11", 0))
            for payload in noise(4711):
                for port in (67, 69):
                    with contextlib.suppress(OSError):
                        sock.sendto(payload, ("10.99.0.1", port))
        return True

    assert wire.there(shoot)
    wait_until(lambda: running.stats()["dhcp.received"] >= 1500)
    assert running.stats()["dhcp.malformed"] > 100
    assert running.stats()["tftp.malformed"] > 100
    still = packets.exchange(
        frame("discover", PXE_BIOS, xid=4242), lambda d: is_reply(d) and Ether(d)[BOOTP].xid == 4242
    )
    assert still is not None
    assert (
        wire.run("curl", "-sS", "-o", "/dev/null", "tftp://10.99.0.1/snponly.efi").returncode == 0
    )


def test_two_clients_at_once_never_get_one_address(running: Any, packets: Any) -> None:
    """What made iPXE give up for good with a pool: both are offered the same address, and the loser
    is NAKed."""
    other = "52:54:00:00:01:02"
    record = {"name": "n2", "macs": [other], "ip": "10.99.0.12", "firmware": "bios"}
    running.do(running.service.node_changed("second", record))
    packets.sock.send(frame("discover", []))
    packets.sock.send(frame("discover", [], mac=other))
    seen: dict[str, str] = {}
    while len(seen) < 2:
        data = packets.sock.recv(4096)
        if is_reply(data) and ARP not in Ether(data):
            seen[Ether(data).dst] = Ether(data)[BOOTP].yiaddr
    assert seen == {MAC: "10.99.0.11", other: "10.99.0.12"}


def test_an_interface_that_is_not_there_is_a_readable_error(
    wire: Any, files: dict[str, Any], make_running: Any
) -> None:
    from layercake.kraken.errors import OperationFailed

    with pytest.raises(
        OperationFailed,
        match="cannot listen for DHCP on interface nope0, UDP port 67: No such device",
    ):
        make_running(wire, files, facts={"interface": "nope0"}).start()


def test_an_interface_that_goes_down_and_up_again(running: Any, wire: Any, packets: Any) -> None:
    for state in ("down", "up"):
        subprocess.run(["ip", "-n", wire.head, "link", "set", wire.head_if, state], check=True)
    wait_until(lambda: packets.exchange(frame("discover", []), is_reply) is not None)


def test_stopped_means_closed(wire: Any, files: dict[str, Any], make_running: Any) -> None:
    for _ in range(2):  # a second start finds every port free
        made = make_running(wire, files, {"ra_prefix": "fd99::/64"})
        made.start()
        made.stop()
        left = subprocess.run(
            ["ip", "netns", "exec", wire.head, "ss", "-Hlnu"],
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        assert left == ""
        assert made.errors == []
