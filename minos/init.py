"""PID 1 of minOS. What it makes of an empty machine is data, listed first; then it becomes the
supervisor.

The root stays the initramfs, nothing is copied: it is bind-mounted onto itself and moved over "/".
After that it is an ordinary mount with a parent, so pivot_root(2), which refuses the bare rootfs
with EINVAL, works for the containers. They are better for it than with `crun --no-pivot`: pivoting
lets go of the node's mounts, whereas moving the root leaves a copy of every mount inside each
container, and an old image's loop device could not be freed while a newer container runs.

The network comes from the kernel command line: another DHCP round would cost seconds and find the
same.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from layercake.kraken.errors import LayercakeError
from minos import hardware, netlink, supervisor, syscalls
from minos.identity import Identity, parse_identity

RUN = "/run/layercake"
MODULES = "/usr/lib/minos/modules"
CLOCK_OFF_S = 300.0
CARD_S = 20.0
"""How long the boot card may take to show up: some load firmware first."""

HOST_NAME_MAX = 64
"""What the kernel takes (__NEW_UTS_LEN); of a longer name the first label is used, which has 63 at
most."""

EARLIEST = 1_767_225_600
"""2026, in seconds since the epoch: a head that says less has a dead clock itself."""

# On the node /dev/shm is made here.
DIRECTORIES = (("/dev/pts", 0o755), ("/dev/shm", 0o1777), (RUN, 0o755))  # noqa: S108

NSD = syscalls.MS_NOSUID | syscalls.MS_NODEV
NSDX = NSD | syscalls.MS_NOEXEC

EARLY_MOUNTS = (
    ("proc", "/proc", "proc", NSDX, ""),
    ("sysfs", "/sys", "sysfs", NSDX, ""),
    ("devtmpfs", "/dev", "devtmpfs", syscalls.MS_NOSUID, "mode=755"),
    (
        "tmpfs",
        "/run",
        "tmpfs",
        NSD,
        "mode=755,size=90%",
    ),  # images live here; pages are only used when written
)
LATE_MOUNTS = (
    (
        "devpts",
        "/dev/pts",
        "devpts",
        syscalls.MS_NOSUID | syscalls.MS_NOEXEC,
        "mode=620,gid=5,ptmxmode=666",
    ),
    ("tmpfs", "/dev/shm", "tmpfs", NSD, "mode=1777"),  # noqa: S108 (mounted here, by PID 1)
    ("cgroup2", "/sys/fs/cgroup", "cgroup2", NSDX, "nsdelegate"),
)

LIMITS = {"/proc/sys/fs/inotify/max_user_instances": "1024"}
"""The kernel's own 128 are for all images together, as their root is one user: some with systemd,
which takes a dozen, and units of the next one fail."""

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/root", "TERM": "linux", "LC_ALL": "C.UTF-8"}


def print_line(text: str) -> None:
    """A line on the console, with the seconds since the kernel started."""
    # The console is our output.
    print(f"minos: {time.clock_gettime(time.CLOCK_BOOTTIME):.2f} {text}", flush=True)  # noqa: T201


def become_root() -> None:
    """Makes the initramfs a mount with a parent; see the top of this file."""
    syscalls.mount("/", "/mnt", "", syscalls.MS_BIND)
    os.chdir("/mnt")
    syscalls.mount(".", "/", "", syscalls.MS_MOVE)
    os.chroot(".")
    os.chdir("/")


def load_modules() -> int:
    """Loads the modules that the builder chose, in its order; a missing piece is said and
    survived."""
    names = Path(MODULES, "load").read_text().split()
    for name in names:
        try:
            syscalls.load_module(f"{MODULES}/{name}.ko")
        except OSError as error:
            print_line(f"cannot load module {name}: {error.strerror}")
    return len(names)


def raise_limits() -> None:
    """Sets what LIMITS says. Raises OSError."""
    for path, value in LIMITS.items():
        Path(path).write_text(value)


def mount_drivers(root: int) -> None:
    """The modules and firmware of hardware.img, if there are any: where this process sees them, and
    where the kernel does (`root`), which looks for firmware, and starts modprobe, in the initramfs
    that is below ours. Raises OSError."""
    if Path(hardware.PACKED).exists():
        syscalls.mount_file(hardware.PACKED, hardware.PACKED_AT, "squashfs")
        syscalls.mount(
            hardware.PACKED_AT, f"/proc/self/fd/{root}{hardware.PACKED_AT}", "", syscalls.MS_BIND
        )


def interface_with(mac: str, root: Path = Path("/sys/class/net")) -> str:
    """The interface with this MAC; without a MAC the first one that is not loopback. "" if there is
    none (yet). What else the kernel has there (bonding_masters), and what goes away while it is
    read, is passed over."""
    for name in hardware.names_in(str(root)):
        address = hardware.read_text(f"{root}/{name}/address").lower()
        if name != "lo" and address and address == (mac.lower() or address):
            return name
    return ""


def set_up_network(identity: Identity, plug: hardware.Plug) -> str:
    """Loads the driver of the boot interface, and brings up that and loopback; returns what to say
    on the console. Raises LayercakeError or OSError."""
    import socket

    link = netlink.Netlink()
    try:
        link.request(netlink.link_up(socket.if_nametoindex("lo"), link.next()), "bring up lo")
        if identity.address is None:
            return "no layercake.ip on the command line: no network"
        name = hardware.find(plug, lambda: interface_with(identity.mac), time.monotonic, CARD_S)
        if not name:
            for card in plug.without():
                print_line(f"init: {hardware.explain(card)}")
            return f"no network card with MAC {identity.mac}"
        index = socket.if_nametoindex(name)
        link.request(netlink.link_up(index, link.next()), f"bring up {name}")
        address = identity.address
        gateway = identity.gateway
        link.request(
            netlink.new_address(index, address.family, address.packed, address.prefix, link.next()),
            f"give {name} its address",
        )
        if identity.mtu:
            attempt(
                f"set the MTU of {name}",
                link.request,
                netlink.link_mtu(index, identity.mtu, link.next()),
                "set it",
            )
        for target, router in identity.routes:
            data = netlink.route(
                index, target.family, target.packed, target.prefix, router.packed, link.next()
            )
            attempt(
                "set a route of the network",
                link.request,
                data,
                f"reach it by {socket.inet_ntop(router.family, router.packed)}",
            )
        if gateway:
            link.request(
                netlink.default_route(index, gateway.family, gateway.packed, link.next()),
                "set the default route",
            )
    finally:
        link.close()
    search = f"search {identity.search}\n" if identity.search and identity.dns else ""
    Path("/etc/resolv.conf").write_text(
        search + "".join(f"nameserver {server}\n" for server in identity.dns)
    )
    return f"{name} {socket.inet_ntop(address.family, address.packed)}/{address.prefix}"


def set_names(identity: Identity, etc: Path = Path("/etc")) -> None:
    """The host name, and the names by which the machine knows itself without asking anybody. Raises
    OSError."""
    import socket

    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    if identity.address is not None:
        lines.append(
            " ".join(
                (
                    socket.inet_ntop(identity.address.family, identity.address.packed),
                    *identity.host_names,
                )
            )
        )
    (etc / "hosts").write_text("\n".join(lines) + "\n")
    names = [name for name in (identity.name, *identity.host_names) if len(name) <= HOST_NAME_MAX]
    syscalls.set_hostname(names[0])


def set_clock(told: int, now: float) -> str:
    """Sets a clock that is far from what the head told; returns what to say on the console. `now`
    is this machine's time. What is nearer may be the time that booting took, and what is before
    minOS was made is no time. Raises OSError."""
    if told < EARLIEST or abs(told - now) <= CLOCK_OFF_S:
        return "the clock stays as it is"
    time.clock_settime(time.CLOCK_REALTIME, told)
    return f"the clock was {now - told:+.0f} s off the head's, and is set"


def attempt(what: str, step: object, *arguments: object) -> object:
    """Runs one step of the start; a failure is said on the console and survived, so that a person
    can look at the machine."""
    try:
        return step(*arguments) if callable(step) else None
    except (OSError, LayercakeError) as error:
        print_line(f"cannot {what}: {error}")
        return None


def prepare() -> Identity | None:
    """Everything up to the supervisor. Returns the node's identity, None if the command line is
    unusable."""
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    become_root()
    os.umask(0o022)
    for entry in EARLY_MOUNTS:
        attempt(f"mount {entry[1]}", syscalls.mount, *entry)
    print_line(f"init: Python {sys.version.split()[0]}, kernel {os.uname().release}")
    for path, mode in DIRECTORIES:
        Path(path).mkdir(mode=mode, exist_ok=True)
    for entry in LATE_MOUNTS:
        attempt(f"mount {entry[1]}", syscalls.mount, *entry)
    attempt("raise the limits of the kernel", raise_limits)
    loaded = attempt("load modules", load_modules)
    print_line(f"init: modules loaded: {loaded}")
    attempt("mount the drivers of hardware.img", mount_drivers, root)
    os.close(root)
    line = Path("/proc/cmdline").read_text()
    identity = attempt("read the kernel command line", parse_identity, line)
    if not isinstance(identity, Identity):
        return None
    if identity.name:
        attempt("set the host name", set_names, identity)
    if identity.time is not None:
        print_line(f"init: {attempt('set the clock', set_clock, identity.time, time.time())}")
    plug = hardware.Plug(_tables(), print_line, refused=hardware.unasked(line))
    network = attempt("set up the network", set_up_network, identity, plug)
    print_line(f"init: network {network or 'failed'}, drivers: {len(plug.loaded)}")
    if not os.fork():
        hardware_process(plug)
    return identity


def _tables() -> hardware.Tables:
    try:
        return hardware.tables()
    except OSError as error:
        print_line(f"cannot read what hardware.img says of drivers: {error}")
        return hardware.EMPTY


def hardware_process(plug: hardware.Plug) -> None:
    """The process that loads all other drivers, while the agent starts already, and those of
    devices that come later, and tells of devices that have none. Never returns."""
    try:
        hardware.watch(plug, RUN)
    # Whatever it was is on the console; it must not go on as PID 1 does.
    except BaseException as error:  # noqa: BLE001
        print_line(f"hardware: no more drivers are loaded: {error!r}")
    os._exit(1)


def agent() -> None:
    """The agent's process; imported only here, so that PID 1 stays small."""
    from layercake.node.main import main_on_node

    main_on_node(RUN)


def main() -> None:
    """/init. Never returns: PID 1 that exits is a kernel panic."""
    os.environ.clear()
    os.environ.update(ENVIRONMENT)
    try:
        identity = prepare()
    except Exception as error:  # noqa: BLE001 (PID 1 must live; whatever it was is on the console)
        print_line(f"cannot start minOS: {error!r}")
        identity = None
    if identity is None or not identity.node or not identity.head:
        print_line(
            "init: no layercake.node and layercake.head on the command line: no agent, supervising "
            "only"
        )
        supervisor.Supervisor(RUN, None, say=print_line, init=True).run()
    supervisor.Supervisor(RUN, agent, say=print_line, init=True, arguments=("--minos", RUN)).run()
