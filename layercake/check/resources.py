"""What the head's machine has: time, certificates, disk space, and the kernel's limits."""

from __future__ import annotations

import errno
import os
import re
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

from layercake.agents.pki import Authority
from layercake.base.datagrams import BUFFER_BYTES, SO_RCVBUFFORCE
from layercake.base.text import count_of
from layercake.check.finding import Finding, check, error, ok, warning
from layercake.check.site import Site
from layercake.kraken.errors import LayercakeError

CLOCK_S = 60.0
_GB = 1 << 30
_LITTLE = 10 * _GB
_LEAST = _GB
_FILES = 4096
_FILES_A_NODE = 4
_OURS = 64
_AUTHORITY_DAYS = (365, 30)
SCRATCH = Path("/var/tmp")  # noqa: S108 (where images are built; nothing is written)


@check("time")
def time(site: Site) -> list[Finding]:
    """Whether somebody keeps the kernel's clock right (adjtimex), and whether the hardware clock,
    which the head starts with after a power failure, is within a minute of it."""
    findings: list[Finding] = []
    machine = site.machine
    if not machine.synchronised():
        findings.append(
            warning(
                "nobody keeps this machine's clock right (adjtimex says unsynchronised)",
                "install chrony, or `timedatectl set-ntp true`; logs and certificates go by it",
            )
        )
    try:
        off = float((machine.sys / "class/rtc/rtc0/since_epoch").read_text()) - machine.wall()
    except (OSError, ValueError):
        off = 0.0  # virtual machines may have none
    if abs(off) > CLOCK_S:
        findings.append(warning(f"the hardware clock is {span(off)}", "hwclock --systohc --utc"))
    return findings or [ok("the clock is kept right")]


def span(seconds: float) -> str:
    """By how much a clock is wrong."""
    size = abs(seconds)
    number, unit = (
        (size / 86400, "days")
        if size >= 172800
        else (size / 3600, "h")
        if size >= 7200
        else ((size / 60, "min") if size >= 120 else (size, "s"))
    )
    return f"{number:.0f} {unit} {'ahead' if seconds > 0 else 'behind'}"


@check("certificates")
def certificates(site: Site) -> list[Finding]:
    """How long the head's certificate and its authority are still good. The head renews its own
    certificate in time while it runs."""
    authority = Authority(site.data_dir / "pki", site.settings.certificates.days)
    ages = authority.ages()
    findings: list[Finding] = [
        error(
            f"there is no certificate of the {missing}",
            f"layercake init --data-dir {site.data_dir}",
        )
        for missing in sorted({"head", "authority"} - {age.what for age in ages})
    ]
    now = site.machine.wall()
    for age in ages:
        if age.what == "head" and site.api is None:
            continue  # made anew when the head starts
        findings += _expiry(age.what, (age.until - now) / 86400, authority.left_at_renewal)
    return findings or [
        ok(", ".join(f"{age.what}: {(age.until - now) / 86400:.0f} days" for age in ages))
    ]


def _expiry(what: str, days: float, left_at_renewal: float) -> Iterator[Finding]:
    """A certificate that is good for no more than a few days yet."""
    if what == "head":
        soon = left_at_renewal * 0.9
        late = left_at_renewal / 4
        hint = "the head should have renewed it: see its log"
    else:
        soon, late = _AUTHORITY_DAYS
        hint = "layercake authority rotate"
    if days < soon:
        ends = f"ends in {days:.0f} days" if days > 0 else "has ended"
        text = f"the certificate of the {what} {ends}"
        yield error(text, hint) if days < late else warning(text, hint)


@check("disk")
def disk(site: Site) -> list[Finding]:
    """Free space, and whether it can be written to, where the head's state and images are, and
    where images are built. A build takes the unpacked system two or three times, some GB: less than
    10 GB is a warning, less than 1 GB an error."""
    findings: list[Finding] = []
    described: list[str] = []
    seen: set[int] = set()
    for what, path in (
        ("the head's state", site.data_dir),
        ("images", site.data_dir / "images"),
        ("builds", SCRATCH),
    ):
        if not path.exists() or (device := path.stat().st_dev) in seen:
            continue
        seen.add(device)
        facts = os.statvfs(path)
        free = facts.f_bavail * facts.f_frsize
        text = f"{path} ({what}) has {facts.f_bavail * facts.f_frsize / _GB:.1f} GB free"
        if facts.f_flag & os.ST_RDONLY:
            findings.append(
                error(f"{path} ({what}) is read-only", "see `dmesg`; mount it writable")
            )
        elif free < _LITTLE:
            hint = (
                "remove old images (`layercake image list`) and boot sets, or give it a bigger disk"
            )
            findings.append(error(text, hint) if free < _LEAST else warning(text, hint))
        if facts.f_files and facts.f_favail < facts.f_files / 50:
            findings.append(
                warning(
                    f"{path} ({what}) has only {facts.f_favail} inodes left",
                    "remove what nobody needs",
                )
            )
        described.append(text)
    return findings or [ok("; ".join(described))]


@check("limits")
def limits(site: Site) -> list[Finding]:
    """The kernel's limits against the number of nodes: open files, receive buffers of UDP sockets,
    the neighbour (ARP) table, and inotify."""
    findings = [*_files(site), *_buffers(), *_neighbours(site)]
    for name, least in (
        ("fs/inotify/max_user_instances", 128),
        ("fs/inotify/max_user_watches", 8192),
    ):
        value = site.machine.number(name)
        if value is not None and value < least:
            what = name.replace("/", ".")
            findings.append(
                warning(
                    f"{what} is {value}: containers and services run out of it",
                    _sysctl(name, least),
                )
            )
    return findings or [ok(f"good for {count_of(len(site.nodes), 'node')}")]


def _sysctl(name: str, value: int) -> str:
    return f"sysctl -w {name.replace('/', '.')}={value}, and write it into /etc/sysctl.d"


def _files(site: Site) -> list[Finding]:
    """A head's processes take as many as they may; those that run are asked, else what one would
    get that this shell starts."""
    needed = _FILES + _FILES_A_NODE * len(site.nodes)
    limits = {}
    for service in (site.status or {}).get("services", []):
        try:
            text = (site.machine.proc / str(service["pid"]) / "limits").read_text()
        except OSError:
            continue
        if match := re.search(r"^Max open files +(\d+)", text, re.MULTILINE):
            limits[str(service["name"])] = int(match[1])
    if not limits:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        limits = {"a program": needed if hard == resource.RLIM_INFINITY else hard}
    who, least = min(limits.items(), key=lambda item: item[1])
    if least >= needed:
        return []
    return [
        warning(
            f"{who} may open {least} files; {needed} are good for "
            f"{count_of(len(site.nodes), 'node')}",
            f"LimitNOFILE={max(65536, needed)} in the unit of the head, or `ulimit -n`",
        )
    ]


def _buffers() -> list[Finding]:
    """What every socket of the head asks for when it opens (base/datagrams.py)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        except OSError as failed:
            why = "not permitted" if failed.errno == errno.EPERM else failed.strerror
            return [
                error(
                    f"UDP sockets cannot have a receive buffer of {BUFFER_BYTES >> 20} MiB: {why}",
                    "the head needs CAP_NET_ADMIN: run it as root",
                )
            ]
        got = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return (
        []
        if got >= BUFFER_BYTES
        else [
            warning(
                f"UDP sockets get receive buffers of {got >> 10} KiB instead of "
                f"{BUFFER_BYTES >> 10}",
                _sysctl("net/core/rmem_max", BUFFER_BYTES),
            )
        ]
    )


def _neighbours(site: Site) -> list[Finding]:
    """Nodes and BMCs that the head may have in one network. The kernel forgets neighbours beyond
    gc_thresh2, and refuses new ones beyond gc_thresh3: nodes cannot be reached then."""
    needed = len(site.nodes) + sum(bool(node.bmc) for node in site.nodes) + _OURS
    name = "net/ipv4/neigh/default/gc_thresh"
    most = site.machine.number(f"{name}3")
    soft = site.machine.number(f"{name}2")
    what = (
        f"the neighbour table holds {most} addresses; {count_of(len(site.nodes), 'node')} with "
        f"BMCs need {needed - _OURS}"
    )
    if most is not None and most < needed:
        return [error(what, _sysctl(f"{name}3", 4 * needed))]
    if soft is not None and soft < needed - _OURS:
        return [
            warning(
                what + f", and those above {soft} are forgotten after seconds",
                _sysctl(f"{name}2", 2 * needed),
            )
        ]
    return []


def reason(failed: LayercakeError | OSError) -> Finding:
    """A check that cannot be carried out."""
    if isinstance(failed, LayercakeError):
        return error(failed.message, failed.hint)
    return error(
        f"cannot look: {failed.strerror or failed}",
        "run it as root, on the head" if failed.errno in (errno.EPERM, errno.EACCES) else "",
    )
