"""A node's BMC in the inventory: its fields, what each may hold, and what they have to be
together."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from layercake.base.secrets import ENV_NAME, SecretRef
from layercake.base.text import describe, nearest, show
from layercake.moduleapi.fields import LABEL, Check, Mistake, host, number, one_of, port, text
from layercake.moduleapi.module import NodePart, Traits, Unique
from powerman.addresses import address, address_after, endpoint, ip_in, url_port

TIMEOUT_S = 8.0
LONGEST_S = 300.0
DEFAULT_PORTS = {"ipmi": 623, "redfish": 443}
SIM = "sim"
"""The driver of BMCs that are made up by `layercake sim` (powerman.drivers.sim); no person needs to
know of it."""
COMMAND = "command"
"""The driver of machines that a program of the site's own switches (powerman.drivers.command)."""
DRIVERS = (*DEFAULT_PORTS, COMMAND)
CIPHER_SUITES = (3, 17)
_OF_DRIVER = {
    "system": ("redfish", SIM),
    "verify_tls": ("redfish",),
    "cipher_suite": ("ipmi",),
    "program": (COMMAND,),
}
_NOT_OF_COMMAND = {
    "port": "the program knows it",
    "timeout_s": "power.programs in config.yaml says how long it may take",
    "health": "a program says nothing of the machine's health",
    "console": "a program has no console",
}
IPMI_NAME = 16
"""Bytes of an IPMI user's name (IPMI 2.0, section 22.28)."""
BOOTS = ("network", "media", "uri")
CONSOLES = ("log", "attach", "off")
_SYSTEM = re.compile(r"/redfish/v1/[A-Za-z0-9._~/%:-]{1,200}")
_PATH = re.compile(r"/[^\x00-\x1f\x7f]{0,1023}")


def driver(value: object) -> str:
    """What the BMC speaks."""
    name = text(value)
    if name not in DRIVERS and name != SIM:
        raise Mistake(
            f"expected {' or '.join(DRIVERS)}, found {show(name)}", nearest(name, DRIVERS)
        )
    return name


def cipher_suite(value: object) -> int | None:
    """IPMI's cipher suite id (IPMI 2.0, table 22-20), or nothing."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value not in CIPHER_SUITES:
        raise Mistake(
            "expected cipher suite 3 or 17",
            "17 (HMAC-SHA256) is the best that IPMI has; the others are not used",
        )
    return value


def username(value: object) -> str:
    """A BMC's user name."""
    name = text(value)
    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise Mistake("expected a user name of 1 to 64 printable characters")
    return name


def password(value: object) -> SecretRef:
    """A reference to a password. A literal one is refused, and never shown."""
    hint = "write {file: /path/on/the/head}, in its directory of secrets, or {env: NAME}"
    if not isinstance(value, dict):
        if value is not None and not isinstance(value, list):
            raise Mistake(
                "a password may not stand in the inventory",
                hint + ", and change the password: it was in a file",
            )
        raise Mistake(f"expected a reference to a password, found {describe(value)}", hint)
    if len(value) != 1 or next(iter(value)) not in ("file", "env"):
        raise Mistake("a password is given by exactly one of file and env", hint)
    kind, entry = next(iter(value.items()))
    where = text(entry)
    if kind == "file":
        if not _PATH.fullmatch(where):
            raise Mistake("expected the absolute path of a file on the head", hint)
        if ".." in where.split("/"):
            raise Mistake("a secret's path has no ..", hint)
        return SecretRef(file=where)
    if not ENV_NAME.fullmatch(where):
        # Not shown: it may be the password itself.
        raise Mistake("expected the name of an environment variable", hint)
    return SecretRef(env=where)


def system(value: object) -> str | None:
    """A Redfish system's path, or nothing."""
    if value is None:
        return None
    path = text(value)
    if not _SYSTEM.fullmatch(path) or ".." in path:
        raise Mistake(
            f"{show(path)} is not the path of a Redfish system", "as /redfish/v1/Systems/1"
        )
    return path


def verify_tls(value: object) -> bool | str:
    """true, false, or the absolute path of a CA file on the head."""
    if isinstance(value, bool):
        return value
    path = text(value)
    if not _PATH.fullmatch(path):
        raise Mistake(f"expected true, false or the absolute path of a CA file, found {show(path)}")
    return path


def program(value: object) -> str:
    """The name of a program."""
    path = text(value)
    if not LABEL.fullmatch(path):
        raise Mistake(
            f"{show(path)} is no name of a program",
            "a program's name in power.programs of config.yaml, not its path",
        )
    return path


def program_path(value: object) -> str:
    """Where a program is on the head."""
    path = text(value)
    if not _PATH.fullmatch(path) or ".." in path.split("/"):
        raise Mistake(f"expected the absolute path of a program, found {show(path)}")
    return path


class Bmc(NodePart, frozen=True, kw_only=True):
    """A node's management controller."""

    KEY: ClassVar[str] = "bmc"

    driver: Annotated[
        Literal["ipmi", "redfish", "command", "sim"],
        Check(driver, missing="ipmi, redfish or command"),
        Meta(
            description="What it speaks; `command`: a program of the site's own switches the "
            "machine. `sim` is for the nodes of "
            "`layercake sim`."
        ),
    ]
    address: Annotated[
        str,
        Check(
            address,
            address_after,
            own=True,
            missing="each node has a BMC address of its own; bmc: null for none",
        ),
        Meta(
            description="ipmi: a host name or IP address. redfish: the same, or a URL with the "
            "port, https://10.98.1.11:8000. "
            "command: what the program is told, as pdu1/7, or pdu1/7,pdu2/7 for a machine with two "
            "supplies."
        ),
    ]
    program: Annotated[
        str,
        Check(program),
        Meta(description="command: the program's name in `power.programs` of config.yaml."),
    ] = ""
    port: Annotated[
        int,
        Check(port, each=True),
        Meta(description="UDP for ipmi (623 if not given), TCP for redfish (443, or the URL's)."),
    ] = 0
    username: Annotated[str, Check(username), Meta(description="The user to log in as.")] = ""
    password: Annotated[
        SecretRef | None,
        Check(password),
        Meta(
            description="A reference to the password: {file: PATH} in the head's directory of "
            "secrets, or {env: NAME}."
        ),
    ] = None
    key: Annotated[
        SecretRef | None,
        Check(password),
        Meta(
            description="ipmi: a reference to the BMC's own key (K_g), for one that has it set; in "
            "the file it is text, or 0x and hexadecimal."
        ),
    ] = None
    system: Annotated[
        str | None,
        Check(system, each=True),
        Meta(description="redfish: the path of the system, when the service has several."),
    ] = None
    verify_tls: Annotated[
        bool | str,
        Check(verify_tls),
        Meta(
            description="redfish: true (the system's authorities), false, or the path of a CA file "
            "on the head."
        ),
    ] = True
    boot: Annotated[
        Literal["network", "media", "uri"],
        Check(one_of(*BOOTS)),
        Meta(
            description="What the BMC is told to boot the node by. network; redfish: media, the "
            "boot medium, which the head puts into "
            "the BMC's virtual drive for one boot; or uri, UEFI HTTP Boot of what the head has for "
            "the node."
        ),
    ] = "network"
    health: Annotated[
        Literal["report", "hold"],
        Check(one_of("report", "hold")),
        Meta(
            description="What becomes of a node whose BMC says that the machine is not well (the "
            "variable bmc-health): that is "
            "reported, or rolls leave it out too."
        ),
    ] = "report"
    console: Annotated[
        Literal["", "log", "attach", "off"],
        Check(one_of(*CONSOLES)),
        Meta(
            description="Its serial console. log: open all the time, and kept in a file; attach: "
            "open while somebody looks at it; off: "
            "never. Without it, as `power.console.keep` in config.yaml says."
        ),
    ] = ""
    cipher_suite: Annotated[
        int | None,
        Check(cipher_suite),
        Meta(description="ipmi: the cipher suite, 17 or 3; if not given, 17 and then 3 is tried."),
    ] = None
    timeout_s: Annotated[
        float,
        Check(number(1, LONGEST_S, "seconds", kind=float)),
        Meta(
            description="Seconds for one operation. More gives every step of the node's power more "
            "time, in proportion."
        ),
    ] = TIMEOUT_S


def complete(given: dict[str, Any]) -> dict[str, Any]:
    """Brings the address into its driver's form, and finds the port. Raises Mistake when they do
    not fit each other, and for a key that the driver has no use for."""
    for key, kinds in _OF_DRIVER.items():
        if given.get(key) is not None and given["driver"] not in kinds:
            raise Mistake(
                f"bmc.{key} is for driver {kinds[0]}, and the driver is {given['driver']}: it "
                "would have no effect",
                "remove it, or put it into a group of those nodes that it is for",
                key,
            )
    if given.get("boot", BOOTS[0]) != BOOTS[0] and given["driver"] != "redfish":
        raise Mistake(
            f"bmc.boot: {given['boot']} is for driver redfish, and the driver is {given['driver']}",
            "IPMI knows neither: let it boot by network, or by a USB stick (layercake boot-media)",
            "boot",
        )
    _check_username(given)
    if given["driver"] == COMMAND:
        return _by_command(given)
    where, port = _endpoint(given["driver"], given["address"], given.get("port"))
    return {**given, "address": where, "port": port}


def _check_username(given: dict[str, Any]) -> None:
    size = len(given.get("username", "").encode())
    if given["driver"] == "ipmi" and size > IPMI_NAME:
        raise Mistake(
            f"the user name has {size} bytes, and IPMI has room for {IPMI_NAME}",
            "name a user of the BMC with a shorter name, or write driver: redfish",
            "username",
        )


def suits(bmc: Bmc, node: Traits) -> None:
    """Whether a node can be booted by its BMC so. Raises Mistake."""
    if bmc.driver == SIM and not node.simulated:
        raise Mistake(
            "driver: sim is for the nodes of `layercake sim`, and this head's are real: nothing "
            "would be switched",
            "write ipmi, redfish or command",
            "driver",
        )
    if bmc.boot == "uri" and node.firmware != "uefi":
        raise Mistake(
            f"bmc.boot: uri is UEFI HTTP Boot, and its firmware is {node.firmware}: no boot would "
            "begin",
            "write firmware: uefi, or boot: network",
            "boot",
        )


def _by_command(given: dict[str, Any]) -> dict[str, Any]:
    if not given.get("program"):
        raise Mistake(
            "bmc.program is missing, and the driver is command",
            "the name of a program in power.programs of config.yaml",
            "driver",
        )
    for key, why in _NOT_OF_COMMAND.items():
        if given.get(key) is not None:
            raise Mistake(
                f"bmc.{key} is not for driver command: {why}",
                "remove it, or put it into a group of those nodes that it is for",
                key,
            )
    return given


def _endpoint(kind: str, where: str, given: int | None) -> tuple[str, int]:
    if kind in DEFAULT_PORTS and "://" not in where:
        _host(where)
    if kind == "redfish":
        return _redfish_root(where, given)
    if "://" in where:
        raise Mistake(
            f"{show(where)} is a URL, and the driver is {kind}",
            "write the host alone, or driver: redfish",
            "address",
        )
    return where, given or DEFAULT_PORTS.get(kind, DEFAULT_PORTS["ipmi"])


def _redfish_root(where: str, given: int | None) -> tuple[str, int]:
    """The URL of a service, without the usual port of its scheme, and its port. `given` is the key
    `port`."""
    url = where
    if "://" not in where:
        url = f"https://[{where}]" if ":" in where else f"https://{where}"
    usual = 80 if url.startswith("http:") else DEFAULT_PORTS["redfish"]
    in_url = url_port(url)
    if in_url is None:
        final = given or usual
        return url if final == usual else f"{url}:{final}", final
    if given is not None and in_url != given:
        raise Mistake(
            f"the URL says port {in_url}, the key port says {given}", "write it once", "address"
        )
    return url, in_url or given or usual


def _host(where: str) -> None:
    try:
        host(where)
    except Mistake as mistake:
        raise Mistake(mistake.message, mistake.hint, "address") from None


def unique(bmc: Bmc) -> tuple[Unique, ...]:
    """No two nodes have one BMC, by whatever driver and however its address is written; several may
    be systems of one service, if each says which. No two have one outlet."""
    if bmc.driver == COMMAND:
        outlets = dict.fromkeys(bmc.address.split(","))
        return tuple(
            Unique("BMC address", (COMMAND, bmc.program, outlet), outlet, "address")
            for outlet in outlets
        )
    place = endpoint(bmc.address, bmc.port)
    its = Unique("BMC address", place, bmc.address, "address", ip_of(bmc), bool(bmc.system))
    if not bmc.system:
        return (its,)
    system = bmc.system.rstrip("/")
    return its, Unique("BMC system", (*place, system), f"{system} of {bmc.address}", "system")


def ip_of(bmc: Bmc) -> str:
    """The IP address of a BMC, "" for one that is given by a host name, and where a program knows
    it."""
    return ip_in(bmc.address) if bmc.driver != COMMAND else ""


def secret_to(bmc: Bmc) -> str:
    """Where the password is sent, and whether anybody checks who is there."""
    if bmc.driver == COMMAND:
        return f"program {bmc.program} {bmc.address}"
    trust = (
        ""
        if bmc.driver != "redfish" or bmc.verify_tls is True
        else f", verify_tls: {str(bmc.verify_tls).lower()}"
    )
    key = ", with its own key" if bmc.key is not None else ""
    return f"{bmc.driver} {bmc.address} port {bmc.port}{trust}{key}"


def warnings(bmc: Bmc) -> tuple[str, ...]:
    """What an eavesdropper on the BMCs' network would be glad of."""
    if bmc.driver != "redfish":
        return ()
    if bmc.address.startswith("http://"):
        return ("the BMC's password goes over http:// where anybody can read it",)
    return (
        () if bmc.verify_tls else ("verify_tls: false sends the BMC's password to whoever answers",)
    )


def view(bmc: Bmc | None) -> dict[str, Any]:
    """What people see of it with the node."""
    return {"bmc": {"driver": bmc.driver, "address": bmc.address} if bmc is not None else None}
