#!/usr/bin/python3 -I
"""Outlets of PDUs by SNMP, for the driver `command` of Layercake: snmp-outlet.py VERB
pdu1/7[,pdu2/7...]

What the names of PDUs mean stands in a file beside this program, of the same name with .ini behind
it:

    [pdu1]
    host = 10.3.0.1             ; or HOST:PORT
    model = apc                 ; one of MODELS, or their six keys: state, is_on, is_off, command,
    on, off
    version = 3                 ; 3 (user and password), or 2c (the password is the community)
    auth = SHA                  ; what the PDU's user has; SHA and AES, if nothing is said, both by
    the one password
    privacy = AES               ; none for a user without encryption
    context =                   ; of a PDU that has several

All outlets of an address are switched together, those of one PDU by one packet; it is on while one
of them is on. It needs Debian's package `snmp`, whose tools are told the password in a file that
nobody else can read.
"""

import configparser
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

USAGE, UNAVAILABLE, NO_PERMISSION = 64, 69, 77
MODELS: Mapping[str, Mapping[str, str]] = {
    # APC PowerNet-MIB, rPDU2OutletSwitchedStatusState and rPDU2OutletSwitchedControlCommand
    "apc": {
        "state": "1.3.6.1.4.1.318.1.1.26.9.2.3.1.5",
        "is_off": "1",
        "is_on": "2",
        "command": "1.3.6.1.4.1.318.1.1.26.9.2.4.1.5",
        "on": "1",
        "off": "2",
    },
    # ... and of those before: rPDUOutletStatusOutletState, rPDUOutletControlOutletCommand
    "apc-old": {
        "state": "1.3.6.1.4.1.318.1.1.12.3.5.1.1.4",
        "is_on": "1",
        "is_off": "2",
        "command": "1.3.6.1.4.1.318.1.1.12.3.3.1.1.4",
        "on": "1",
        "off": "2",
    },
    # Raritan PDU2-MIB, outletSwitchingState and switchingOperation of the first PDU
    "raritan": {
        "state": "1.3.6.1.4.1.13742.6.4.1.2.1.3.1",
        "is_on": "7",
        "is_off": "8",
        "command": "1.3.6.1.4.1.13742.6.4.1.2.1.2.1",
        "on": "1",
        "off": "0",
    },
    # Server Technology Sentry3-MIB, outletStatus and outletControlAction of the first tower and
    # infeed
    "sentry3": {
        "state": "1.3.6.1.4.1.1718.3.2.3.1.5.1.1",
        "is_off": "0",
        "is_on": "1",
        "command": "1.3.6.1.4.1.1718.3.2.3.1.11.1.1",
        "on": "1",
        "off": "2",
    },
}
AUTHS = ("MD5", "SHA", "SHA-224", "SHA-256", "SHA-384", "SHA-512")
PRIVACIES = ("none", "DES", "AES", "AES-192", "AES-256")
WAIT_S, TRIES = 1, 2


class Failed(Exception):
    """Why, and with which exit status this ends."""

    def __init__(self, why: str, status: int = 1) -> None:
        super().__init__(why)
        self.status = status


def quoted(text: str) -> str:
    """Text for snmp.conf."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def one_of(
    section: configparser.SectionProxy, key: str, usual: str, choices: tuple[str, ...]
) -> str:
    """A setting with few values."""
    found = section.get(key, usual)
    if found not in choices:
        raise Failed(f"{key} of {section.name} is {found!r}, expected {' or '.join(choices)}")
    return found


class Pdu:
    """A PDU of the .ini file."""

    def __init__(self, section: configparser.SectionProxy, user: str, password: str) -> None:
        self.name, self.host = section.name, section.get("host", section.name)
        if self.host.startswith("-"):
            raise Failed(f"{self.host!r} is no host")
        model = section.get("model", "")
        if model and model not in MODELS:
            raise Failed(f"model of {self.name} is {model!r}, expected {' or '.join(MODELS)}")
        self.how = {
            key: section.get(key, MODELS.get(model, {}).get(key, "")) for key in MODELS["apc"]
        }
        if bad := [
            key for key, value in self.how.items() if not re.fullmatch(r"[0-9]+(\.[0-9]+)*", value)
        ]:
            raise Failed(f"{self.name} has no model, and no {bad[0]}")
        if one_of(section, "version", "3", ("3", "2c")) == "2c":
            self.login = f"defVersion 2c\ndefCommunity {quoted(password)}\n"
            return
        auth, privacy = (
            one_of(section, "auth", "SHA", AUTHS),
            one_of(section, "privacy", "AES", PRIVACIES),
        )
        self.login = (
            f"defVersion 3\ndefSecurityName {quoted(user)}\ndefAuthType "
            f"{auth}\ndefAuthPassphrase {quoted(password)}\n"
        )
        self.login += (
            f"defContext {quoted(context)}\n" if (context := section.get("context", "")) else ""
        )
        self.login += (
            "defSecurityLevel authNoPriv\n"
            if privacy == "none"
            else (
                f"defSecurityLevel authPriv\ndefPrivType {privacy}\ndefPrivPassphrase "
                f"{quoted(password)}\n"
            )
        )

    def run(self, tool: str, words: list[str]) -> list[str]:
        """The lines that a tool of Net-SNMP answers."""
        with tempfile.TemporaryDirectory(prefix="snmp-outlet-") as private:
            conf = Path(private, "snmp.conf")
            conf.touch(mode=0o600)
            conf.write_text(self.login)
            environment = {
                "PATH": os.environ.get("PATH", "/usr/bin"),
                "SNMPCONFPATH": private,
                "SNMP_PERSISTENT_DIR": private,
                "MIBS": "",
                "LC_ALL": "C.UTF-8",
                "HOME": private,
            }
            done = subprocess.run(
                [tool, "-Oqv", "-On", "-t", str(WAIT_S), "-r", str(TRIES), self.host, *words],
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        if done.returncode == 0:
            return done.stdout.split("\n")[:-1]
        lines = [
            line.strip()
            for line in done.stderr.splitlines()
            if not line.startswith("Created directory")
        ]
        said = "; ".join(filter(None, lines))
        why = f"{self.name}: {said or 'no answer'}"
        if re.search(r"Timeout|Unknown host|Network is unreachable|No route", said):
            raise Failed(why, UNAVAILABLE)  # with 2c, a wrong community is silence too
        if re.search(
            r"Authentication failure|Unknown user name|authorizationError|Decryption "
            r"error|noAccess",
            said,
        ):
            raise Failed(why, NO_PERMISSION)
        raise Failed(why)

    def is_on(self, outlets: list[str]) -> bool:
        """Whether one of its outlets is on."""
        found = self.run("snmpget", [f"{self.how['state']}.{outlet}" for outlet in outlets])
        states = dict(zip(outlets, found, strict=False))
        for outlet in outlets:
            if states.get(outlet) not in (self.how["is_on"], self.how["is_off"]):
                raise Failed(f"{self.name}: outlet {outlet} says {states.get(outlet, 'nothing')!r}")
        return self.how["is_on"] in states.values()

    def switch(self, verb: str, outlets: list[str]) -> None:
        """Switches outlets, by one packet."""
        self.run(
            "snmpset",
            [
                word
                for outlet in outlets
                for word in (f"{self.how['command']}.{outlet}", "i", self.how[verb])
            ],
        )


def outlets_of(address: str) -> dict[str, list[str]]:
    """PDUs by name, and their outlets."""
    found: dict[str, list[str]] = {}
    for part in address.split(","):
        pdu, _, outlet = part.rpartition("/")
        if not pdu or not outlet.isdecimal() or not outlet.isascii():
            raise Failed(f"{part!r} is no outlet, as pdu1/7")
        found.setdefault(pdu, []).append(str(int(outlet)))
    return found


def main(verb: str, address: str) -> None:
    """Does it, or raises Failed. All PDUs are asked, though one fails."""
    if verb not in ("status", "on", "off"):
        raise Failed(f"there is no {verb}", USAGE)
    user, password = (sys.stdin.readline().rstrip("\n") for _ in range(2))
    settings = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=(";",))
    settings.read(f"{Path(sys.argv[0]).absolute()}.ini")
    wanted = {}
    for name, outlets in outlets_of(address).items():
        if name not in settings:
            raise Failed(f"{sys.argv[0]}.ini has no [{name}]")
        wanted[Pdu(settings[name], user, password)] = outlets
    on, failed = False, []
    for pdu, outlets in wanted.items():
        try:
            if verb == "status":
                on = pdu.is_on(outlets) or on
            else:
                pdu.switch(verb, outlets)
        except Failed as error:
            failed.append(error)
    if failed and not on:  # one that is on is on, whatever the other would say
        raise failed[0]
    if verb == "status":
        sys.stdout.write("on\n" if on else "off\n")


def end(error: Failed) -> NoReturn:
    """Says why."""
    sys.stderr.write(f"{error}\n")
    sys.exit(error.status)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        end(Failed("usage: snmp-outlet.py status|on|off PDU/OUTLET,...", USAGE))
    try:
        main(sys.argv[1], sys.argv[2])
    except Failed as error:
        end(error)
    except (OSError, configparser.Error) as error:
        end(Failed(" ".join(str(error).split())))
