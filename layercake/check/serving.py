"""What nodes fetch from the head, fetched by ourselves: boot programs by TFTP, kernel and minOS by
HTTP; and what the packet filter would do with the nodes' requests.

The head serves nodes that are to boot now, and nobody else. For half a minute it serves itself too
(the call boot.visit): not the boot scripts, which have tokens.
"""

from __future__ import annotations

import filecmp
import http.client
import io
import ipaddress
import itertools
import logging
import socket
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from layercake.base.text import count_of, grouped
from layercake.check.filters import ACCEPT, DROP, Filter, Packet
from layercake.check.finding import Finding, check, error, ok, warning
from layercake.check.site import VISIT, CheckedNode, Site, call_module
from pxe.dhcp.proxydhcp import PORT as PROXY_PORT

FETCH_S = 30.0
_TFTP_S = 3
_SEE = "see `layercake status` and the head's log"


@check("tftp")
def tftp(site: Site) -> list[Finding]:
    """The boot programs, fetched by TFTP from the head's address as firmware does, and compared
    with the files. While no head runs: whether its ports are free, and whether the programs are
    there."""
    if site.api is None:
        return _ports(site)
    visit = call_module(site.api, VISIT, {"seconds": FETCH_S})
    findings = []
    for name, path in visit["programs"].items():
        why = _by_tftp(visit["address"], visit["tftp_port"], name, Path(path))
        if why:
            findings.append(
                error(f"cannot fetch {name} by TFTP from {visit['address']}: {why}", _SEE)
            )
    return findings or [ok(f"{', '.join(visit['programs'])} fetched from {visit['address']}")]


def _by_tftp(address: str, port: int, name: str, path: Path) -> str:
    """Why a file cannot be fetched, "" if it can."""
    import tftpy  # here: it is needed for nothing else

    logging.getLogger("tftpy").setLevel(logging.CRITICAL)
    got = io.BytesIO()
    try:
        tftpy.TftpClient(address, port, {"blksize": 1428, "tsize": 0}).download(
            name, got, timeout=_TFTP_S
        )
    except (tftpy.TftpException, OSError) as failed:
        return str(failed) or type(failed).__name__
    return "" if got.getvalue() == path.read_bytes() else f"it is not what {path} holds"


def _ports(site: Site) -> list[Finding]:
    boot = site.of("boot")
    findings: list[Finding] = []
    dns = [("DNS", boot.dns.port)] if boot.dns.serve else []
    dhcp = {"serve": [boot.dhcp_port], "proxy": [boot.dhcp_port, PROXY_PORT], "off": []}[boot.dhcp]
    ports = (("TFTP", boot.tftp_port), *(("DHCP", port) for port in dhcp), *dns)
    for address, (what, port) in itertools.product(site.settings.addresses, ports):
        with socket.socket(
            socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM
        ) as sock:
            try:
                sock.bind((address, port))
            except OSError as failed:
                who = ", ".join(f"{a} {w}".strip() for a, w in site.machine.listeners(port))
                findings.append(
                    error(
                        f"UDP port {port} of {address} cannot be had for {what}: {failed.strerror}"
                        + (f" ({who})" if who else ""),
                        "stop what listens there",
                    )
                )
    findings.extend(
        error(f"there is no {name} in {boot.ipxe_dir}", "install the package ipxe")
        for name in ("undionly.kpxe", "snponly.efi")
        if not (Path(boot.ipxe_dir) / name).is_file()
    )
    return findings or [
        ok("the head does not run: its UDP ports are free, and the boot programs are there")
    ]


@check("http")
def http_files(site: Site) -> list[Finding]:
    """Kernel and minOS of each boot set in use, fetched by HTTP and compared with the files, and
    the head's API, by TLS and its own authority, as agents reach it. While no head runs: whether
    there is a boot set."""
    if site.api is None:
        return [_built_sets(site.data_dir / "boot")]
    visit = call_module(site.api, VISIT, {"seconds": FETCH_S})
    findings = [*_default_set(site.api.get("/v1/boot")["sets"]), *_missing(visit["missing"])]
    for name, path in visit["files"].items():
        if why := _by_http(f"{visit['base']}/{name}", Path(path)):
            findings.append(error(f"cannot fetch {visit['base']}/{name}: {why}", _SEE))
    if why := _by_tls(site):
        findings.append(
            error(
                f"cannot reach the head's API at {site.settings.head_url}, as nodes do: {why}", _SEE
            )
        )
    return findings or [
        ok(
            f"{count_of(len(visit['files']), 'file')} fetched from {visit['base']}; the API "
            f"answers at {site.settings.head_url}"
        )
    ]


def _built_sets(boot: Path) -> Finding:
    """Whether there is a boot set in the directory of them."""
    sets = sorted(path.parent.name for path in boot.glob("*/vmlinuz"))
    if not sets:
        return error(f"there is no boot set in {boot}", "layercake boot build")
    return ok(f"the head does not run: boot sets {', '.join(sets)} are there")


def _default_set(sets: list[dict[str, Any]]) -> Iterator[Finding]:
    default = next((s for s in sets if s["default"]), None)
    trouble = default["trouble"] if default is not None else "there is no default boot set"
    if trouble:
        yield error(
            f"nodes have nothing to boot: {trouble}",
            "layercake boot build, layercake boot default SET",
        )


def _missing(missing: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """`missing` says of nodes why they cannot be booted, and what to do about it; one finding for
    each reason."""
    nodes = grouped((tuple(reason), name) for name, reason in missing.items())
    for (why, do), names in sorted(nodes.items()):
        yield error(f"cannot boot: {why}", do, names)


def _by_http(url: str, path: Path) -> str:
    """Why a file cannot be fetched, "" if it can."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=10.0)
    try:
        connection.request("GET", place.path)
        answer = connection.getresponse()
        if answer.status != 200:
            return f"HTTP {answer.status} {answer.reason}"
        with tempfile.NamedTemporaryFile(prefix="layercake-check-") as got:
            while piece := answer.read(1 << 20):
                got.write(piece)
            got.flush()
            return (
                "" if filecmp.cmp(got.name, path, shallow=False) else f"it is not what {path} holds"
            )
    except (OSError, http.client.HTTPException) as failed:
        return str(failed) or type(failed).__name__
    finally:
        connection.close()


def _by_tls(site: Site) -> str:
    """Why the API cannot be reached by TLS, "" if it can."""
    place = urlsplit(site.settings.head_url)
    try:
        context = ssl.create_default_context(cafile=str(site.data_dir / "pki/ca.pem"))
        with (
            socket.create_connection((place.hostname, place.port), timeout=10.0) as plain,
            context.wrap_socket(plain, server_hostname=place.hostname),
        ):
            return ""
    except OSError as failed:  # ssl.SSLError is one
        return str(failed) or type(failed).__name__


@check("filter", sides=True)
def packet_filter(site: Site) -> list[Finding]:
    """What the packet filter of this machine (nftables, also by iptables-nft) does with the
    requests of nodes on their interface: DHCP, DNS, TFTP, boot files, images, the API, state sync.
    Worked out from its rules. Rules of iptables-legacy are not seen."""
    rules = Filter(site.machine.ruleset())
    settings = site.settings
    node = site.nodes[0] if site.nodes else CheckedNode(name="", macs=(), ip="", firmware="bios")
    dropped: list[str] = []
    doubtful: list[str] = []
    for what, protocol, port, source, target in _requests(site, node):
        ends = rules.verdicts(
            Packet(
                into=settings.interface, source=source, target=target, protocol=protocol, port=port
            )
        )
        if DROP in ends:
            (doubtful if ACCEPT in ends else dropped).append(f"{what} ({protocol} {port})")
    open_it = f"let it in on {settings.interface}: see `nft list ruleset`"
    findings = [
        error(f"the packet filter drops what nodes send: {', '.join(dropped)}", open_it)
    ] * bool(dropped)
    findings += [
        warning(
            f"the packet filter may drop what nodes send: {', '.join(doubtful)}; it has rules that "
            "cannot be judged here",
            open_it,
        )
    ] * bool(doubtful)
    return findings or [ok(f"the packet filter lets nodes in on {settings.interface}")]


def _requests(site: Site, node: CheckedNode) -> list[tuple[str, str, int, str, str]]:
    """(what, protocol, port, source, target) of what a node asks of the head."""
    settings = site.settings
    boot = site.of("boot")
    head = settings.address
    ip = node.ip or _neighbour(settings.address)
    dns = [
        ("DNS", protocol, boot.dns.port, ip, head) for protocol in ("udp", "tcp") if boot.dns.serve
    ]
    if ":" in head:
        dhcp = [("DHCPv6", "udp", 547, "fe80::1", "ff02::1:2")]
    else:
        dhcp = [("DHCP", "udp", boot.dhcp_port, "0.0.0.0", "255.255.255.255")] * (
            boot.dhcp != "off"
        )
        dhcp += [("proxyDHCP", "udp", PROXY_PORT, ip, head)] * (boot.dhcp == "proxy")
    return [
        *dns,
        *dhcp,
        ("TFTP", "udp", boot.tftp_port, ip, head),
        ("boot files", "tcp", boot.http_port, ip, head),
        ("images", "tcp", site.of("images").http_port, ip, head),
        ("the API", "tcp", settings.api_port, ip, head),
        ("state sync", "udp", settings.sync.port, ip, head),
    ]


def _neighbour(address: str) -> str:
    """Another address of the network, for a site without nodes."""
    parsed = ipaddress.ip_address(address)
    return str(type(parsed)(int(parsed) ^ 2))
