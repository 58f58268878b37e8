"""Checks of single values: each takes what stands in the YAML and returns the validated value, or raises Mistake.

What passes here ends up in DHCP answers, boot scripts, kernel command lines and host names, so the checks are strict:
a value is refused unless it is known to be harmless there.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from urllib.parse import SplitResult, urlsplit

from layercake.inventory.problems import nearest, show
from layercake.inventory.secrets import ENV_NAME, SecretRef
from layercake.inventory.yaml_marks import Listing, Marked, Scalar, Table, describe

MAX_KERNEL_ARGS = 1024  # x86 takes 2048 (COMMAND_LINE_SIZE); the rest is for Layercake's own arguments

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
# As the image store has it; the inventory may not import the store.
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?")
_GROUP = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_CONSOLE = re.compile(r"[a-zA-Z]{2,12}[0-9]{0,3}(,[0-9]{3,7}([noe]([5-8]r?)?)?)?")
_SYSTEM = re.compile(r"/redfish/v1/[A-Za-z0-9._~/%:-]{1,200}")
_PATH = re.compile(r"/[^\x00-\x1f\x7f]{0,1023}")
_RESERVED_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "broadcasthost")


class Mistake(Exception):
    """What is wrong with a value, and what to write instead. The caller knows the place."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def text(value: Marked) -> str:
    """A text value."""
    if isinstance(value, Scalar) and isinstance(value.value, str):
        return value.value
    hint = "quote it to make it text" if isinstance(value, Scalar) and value.value is not None else ""
    raise Mistake(f"expected text, found {describe(value)}", hint)


def one_of(*choices: str) -> Callable[[Marked], str]:
    """A check for one word out of a few."""

    def check(value: Marked) -> str:
        word = value.text if isinstance(value, Scalar) else text(value)
        if word not in choices:
            raise Mistake(f"expected {' or '.join(choices)}, found {show(word)}", nearest(word, choices))
        return word

    return check


def node_name(name: str) -> str:
    """A node's name: an RFC 1123 host name in lower case (it becomes a host name, a DNS name and part of file names)."""
    if not all(_LABEL.fullmatch(label) for label in name.split(".")) or len(name) > 253:
        hint = f"did you mean {name.lower()}?" if name != name.lower() else "lower-case letters, digits and inner hyphens, RFC 1123"
        raise Mistake(f"{show(name)} is not a host name", hint)
    if not re.search("[a-z]", name) or name in _RESERVED_NAMES:
        raise Mistake(f"{show(name)} cannot be a node's name", "a name has a letter, and is not reserved as localhost is")
    return name


def group_name(name: str) -> str:
    """A group's name, usable as @name in ranges."""
    if not _GROUP.fullmatch(name):
        raise Mistake(f"{show(name)} is not a group name", "a letter, then letters, digits, - or _, at most 32")
    if name == "all":
        raise Mistake("a group cannot be called all", "@all already means every node")
    return name


def mac(word: str) -> str:
    """An Ethernet address, brought to lower case with colons. Multicast and all-zero ones are refused."""
    address = word.lower().replace("-", ":")
    if not _MAC.fullmatch(address):
        raise Mistake(f"{show(word)} is not a MAC address", "write six pairs of hex digits: 52:54:00:12:34:56")
    if int(address[:2], 16) & 1 or address == "00:00:00:00:00:00":
        raise Mistake(f"{show(word)} is not the address of one card", "multicast and all-zero addresses cannot be a node's")
    return address


def mac_after(word: str, steps: int) -> str:
    """The MAC address `steps` further on."""
    number = int(mac(word).replace(":", ""), 16) + steps
    if number >= 1 << 48:
        raise Mistake(f"counting up from {show(word)} leaves the MAC addresses")
    return mac(":".join(f"{number:012x}"[i : i + 2] for i in range(0, 12, 2)))


def ip(word: str) -> str:
    """A node's IPv4 address."""
    try:
        address = ipaddress.IPv4Address(word)
    except ValueError:
        raise Mistake(f"{show(word)} is not an IPv4 address", "four numbers up to 255, as 10.0.0.17, without a prefix") from None
    if address.is_multicast or address.is_unspecified or address.is_loopback or word == "255.255.255.255":
        raise Mistake(f"{show(word)} cannot be a node's address", "multicast, loopback and broadcast addresses are no node's own")
    return str(address)


def ip_after(word: str, steps: int) -> str:
    """The address `steps` further on."""
    try:
        return ip(str(ipaddress.IPv4Address(ip(word)) + steps))
    except ipaddress.AddressValueError:
        raise Mistake(f"counting up from {show(word)} leaves the IPv4 addresses") from None


def images(value: Marked, known: Iterable[str] | None) -> tuple[str, ...]:
    """A list of image names. Raises Mistake for the first bad one; see sections.py for all of them."""
    if not isinstance(value, Listing):
        raise Mistake(f"expected a list of image names, found {describe(value)}", "write [name] even for one image; [] for none")
    names = tuple(image(item, known) for item in value.items)
    if len(set(names)) != len(names):
        raise Mistake("an image stands twice in the list")
    return names


def image(value: Marked, known: Iterable[str] | None) -> str:
    """One image name, and whether the store has it when `known` is given."""
    name = text(value)
    if not _IMAGE.fullmatch(name):
        raise Mistake(f"{show(name)} is not an image name", "letters, digits, . _ and -, and perhaps one :tag")
    if known is not None and name not in known:
        raise Mistake(f"there is no image {name}", nearest(name, known) or "add it with `layercake image add`")
    return name


def kernel_args(value: Marked) -> str:
    """Kernel arguments: one line that means the same in an iPXE script, in a GRUB script and to the kernel."""
    line = "" if isinstance(value, Scalar) and value.value is None else text(value)
    if len(line) > MAX_KERNEL_ARGS:
        raise Mistake(f"{len(line)} characters of kernel arguments, at most {MAX_KERNEL_ARGS} fit")
    for character in line:
        if not " " <= character <= "~":
            raise Mistake(f"the character {show(character)} may not stand in kernel arguments", "one line of plain ASCII")
        if character in "{}$`\\\"'#;":
            raise Mistake(f"the character {character} may not stand in kernel arguments", "boot scripts would give it a meaning")
    for word in line.split():
        if word in ("&&", "||", "&", "|"):
            raise Mistake(f"{word} may not stand in kernel arguments", "boot scripts would give it a meaning")
        if word.startswith(("layercake.", "initrd=")):
            raise Mistake(f"the argument {show(word.split('=')[0])} is set by Layercake itself", "remove it")
    return " ".join(line.split())


def console(value: Marked) -> str:
    """The kernel's console device."""
    word = text(value)
    if not _CONSOLE.fullmatch(word):
        raise Mistake(f"{show(word)} is not a console", "write a device and perhaps its speed: ttyS0 or ttyS0,115200n8")
    return word


def boot_timeout(value: Marked) -> float:
    """Seconds from power-on to join: 10 to 3600."""
    number = value.value if isinstance(value, Scalar) else None
    if isinstance(number, bool) or not isinstance(number, int | float) or not 10 <= number <= 3600:
        raise Mistake("expected seconds from 10 to 3600", "180 is the default")
    return float(number)


def port(value: Marked) -> int:
    """A UDP or TCP port."""
    number = value.value if isinstance(value, Scalar) else None
    if isinstance(number, bool) or not isinstance(number, int):
        raise Mistake(f"expected a port number, found {describe(value)}")
    if not 1 <= number <= 65535:
        raise Mistake(f"the port {number} does not exist", "ports go from 1 to 65535; IPMI has 623, Redfish 443")
    return number


def cipher_suite(value: Marked) -> int | None:
    """IPMI's cipher suite id (IPMI 2.0, table 22-20), or nothing."""
    number = value.value if isinstance(value, Scalar) else -1
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= 17:
        raise Mistake("expected a cipher suite from 0 to 17", "17 (HMAC-SHA256) is the best that IPMI has")
    return number


def username(value: Marked) -> str:
    """A BMC's user name."""
    word = text(value)
    if not 1 <= len(word) <= 64 or not word.isprintable():
        raise Mistake("expected a user name of 1 to 64 printable characters")
    return word


def password(value: Marked) -> SecretRef:
    """A reference to a password. A literal one is refused, and never shown."""
    hint = "write {file: /path/on/the/head} or {env: NAME}"
    if not isinstance(value, Table):
        if isinstance(value, Scalar) and value.value is not None:
            raise Mistake("a password may not stand in the inventory", hint + ", and change the password: it was in a file")
        raise Mistake(f"expected a reference to a password, found {describe(value)}", hint)
    if len(value.entries) != 1 or next(iter(value.entries)) not in ("file", "env"):
        raise Mistake("a password is given by exactly one of file and env", hint)
    kind, entry = next(iter(value.entries.items()))
    where = text(entry.value)
    if kind == "file":
        if not _PATH.fullmatch(where):
            raise Mistake("expected the absolute path of a file on the head", hint)
        return SecretRef(file=where)
    if not ENV_NAME.fullmatch(where):
        # Not shown: it may be the password itself.
        raise Mistake("expected the name of an environment variable", hint)
    return SecretRef(env=where)


def system(value: Marked) -> str | None:
    """A Redfish system's path, or nothing."""
    if isinstance(value, Scalar) and value.value is None:
        return None
    path = text(value)
    if not _SYSTEM.fullmatch(path) or ".." in path:
        raise Mistake(f"{show(path)} is not the path of a Redfish system", "as /redfish/v1/Systems/1")
    return path


def verify_tls(value: Marked) -> bool | str:
    """true, false, or the absolute path of a CA file on the head."""
    if isinstance(value, Scalar) and isinstance(value.value, bool):
        return value.value
    path = text(value)
    if not _PATH.fullmatch(path):
        raise Mistake(f"expected true, false or the absolute path of a CA file, found {show(path)}")
    return path


def bmc_address(word: str) -> str:
    """A BMC's address, before its driver is known: a host name, an IP, or an http(s) URL without user, path and query."""
    if "://" not in word:
        return _host(word)
    url = _url(word)
    if url.scheme not in ("http", "https"):
        raise Mistake(f"{show(url.scheme)} is not a way to a BMC", "write https://HOST, or HOST alone")
    if url.username is not None or url.password is not None:
        # Not shown: it holds a password.
        raise Mistake("a user or password may not stand in the address", "use the keys username and password")
    if url.path not in ("", "/") or url.query or url.fragment:
        raise Mistake(f"{show(word)} has more than host and port", "the path of the system goes into the key system")
    host = _host(url.hostname or "")
    host = f"[{host}]" if ":" in host else host
    return f"{url.scheme}://{host}" + (f":{url_port(word)}" if url_port(word) else "")


def bmc_address_after(word: str, steps: int) -> str:
    """An address given by an IPv4 address, `steps` further on."""
    found = re.fullmatch(r"(https?://)?([0-9.]+)(:[0-9]+)?", word)
    if not found:
        raise Mistake(f"cannot count up from {show(word)}", "only an IPv4 address can be counted up: 10.1.0.1+ or https://10.1.0.1+:8000")
    return bmc_address(f"{found[1] or ''}{ip_after(found[2], steps)}{found[3] or ''}")


def url_port(word: str) -> int | None:
    """The port in a URL, None if there is none. Raises Mistake when it is out of range."""
    try:
        return _url(word).port
    except ValueError:
        raise Mistake("the port in the URL does not exist", "ports go from 1 to 65535") from None


def _url(word: str) -> SplitResult:
    if re.search(r"[\s\x00-\x1f\x7f]", word):
        raise Mistake("an address has no spaces or control characters")
    try:
        return urlsplit(word)
    except ValueError:
        raise Mistake(f"{show(word)} is not a URL", "as https://10.98.1.11:8000") from None


def _host(word: str) -> str:
    try:
        return str(ipaddress.ip_address(word))
    except ValueError:
        pass
    if re.fullmatch(r"[0-9.]+", word) or not all(_LABEL.fullmatch(label) for label in word.lower().split(".")) or len(word) > 253:
        raise Mistake(f"{show(word)} is neither an IP address nor a host name", "the port goes into the key port")
    return word.lower()
