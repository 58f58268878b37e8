#!/usr/bin/python3 -I
"""Outlets of PDUs by Redfish, for the driver `command` of Layercake: redfish-outlet.py VERB
pdu1/A1[,pdu2/A1...]

What the names of PDUs mean stands in a file beside this program, of the same name with .ini behind
it:

    [pdu1]
    url = https://10.3.0.1      ; or HOST alone
    pdu = 1                     ; its Id below /redfish/v1/PowerEquipment/RackPDUs; 1, if nothing is
    said
    ca = /etc/layercake/pdu.pem ; who signed its certificate; the system's authorities, if nothing
    is said

All outlets of an address are switched; it is on while one of them is on.
"""

import base64
import configparser
import http.client
import json
import re
import ssl
import sys
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

USAGE, UNAVAILABLE, NO_PERMISSION = 64, 69, 77
WAIT_S, MOST = 3.0, 1 << 20
STATES = {"On": True, "PoweringOn": True, "Off": False, "PoweringOff": True}
"""One that is about to be off is on."""


class Failed(Exception):
    """Why, and with which exit status this ends."""

    def __init__(self, why: str, status: int = 1) -> None:
        super().__init__(why)
        self.status = status


class Outlet:
    """An outlet of a PDU of the .ini file."""

    def __init__(self, section: configparser.SectionProxy, outlet: str, login: str) -> None:
        url = section.get("url", section.name)
        self._at = urlsplit(url if "://" in url else f"https://{url}")
        self._ca = section.get("ca") or None
        self._name, self._login = f"{section.name}/{outlet}", login
        self._path = (
            f"/redfish/v1/PowerEquipment/RackPDUs/{section.get('pdu', '1')}/Outlets/{outlet}"
        )
        if (
            self._at.scheme not in ("http", "https")
            or not self._at.hostname
            or not re.fullmatch(r"[A-Za-z0-9_./%-]+", self._path)
        ):
            raise Failed(f"{self._name}: {url!r} is no URL of a PDU")

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """What the PDU answers."""
        host, port = self._at.hostname or "", self._at.port
        line = (
            http.client.HTTPConnection(host, port, timeout=WAIT_S)
            if self._at.scheme == "http"
            else http.client.HTTPSConnection(
                host, port, timeout=WAIT_S, context=ssl.create_default_context(cafile=self._ca)
            )
        )
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "Authorization": f"Basic {self._login}",
        }
        try:
            line.request(method, path, None if body is None else json.dumps(body), headers)
            answer = line.getresponse()
            data = answer.read(MOST)
        except ssl.SSLError as error:
            raise Failed(f"{self._name}: {error}") from None
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"{self._name}: {error or type(error).__name__}", UNAVAILABLE) from None
        finally:
            line.close()
        if answer.status in (401, 403):
            raise Failed(f"{self._name}: it does not take user or password", NO_PERMISSION)
        if answer.status >= 300:
            raise Failed(f"{self._name}: HTTP status {answer.status}")
        try:
            found = json.loads(data or b"{}")
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Failed(f"{self._name}: its answer is not JSON")
        return found

    def is_on(self) -> bool:
        """Whether it is on."""
        said = self.ask("GET", self._path).get("PowerState")
        if not isinstance(said, str) or said not in STATES:
            raise Failed(f"{self._name}: its PowerState is {said!r}")
        return STATES[said]

    def switch(self, verb: str) -> None:
        """Switches it, by its own action (DSP2046, Outlet.PowerControl)."""
        actions = self.ask("GET", self._path).get("Actions")
        action = actions.get("#Outlet.PowerControl") if isinstance(actions, dict) else None
        target = (
            str(action.get("target"))
            if isinstance(action, dict)
            else f"{self._path}/Actions/Outlet.PowerControl"
        )
        if not re.fullmatch(r"/redfish/[!-~]{1,250}", target):
            raise Failed(f"{self._name}: {target!r} is no path of an action")
        self.ask("POST", target, {"PowerState": verb.capitalize()})


def main(verb: str, address: str) -> None:
    """Does it, or raises Failed. All outlets are asked, though one fails."""
    if verb not in ("status", "on", "off"):
        raise Failed(f"there is no {verb}", USAGE)
    user, password = (sys.stdin.readline().rstrip("\n") for _ in range(2))
    login = base64.b64encode(f"{user}:{password}".encode()).decode()
    settings = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=(";",))
    settings.read(f"{Path(sys.argv[0]).absolute()}.ini")
    wanted = []
    for part in address.split(","):
        pdu, _, outlet = part.rpartition("/")
        if not pdu or not re.fullmatch(r"[A-Za-z0-9_-]+", outlet):
            raise Failed(f"{part!r} is no outlet, as pdu1/A1")
        if pdu not in settings:
            raise Failed(f"{sys.argv[0]}.ini has no [{pdu}]")
        wanted.append(Outlet(settings[pdu], outlet, login))
    on, failed = False, []
    for one in wanted:
        try:
            if verb == "status":
                on = one.is_on() or on
            else:
                one.switch(verb)
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
        end(Failed("usage: redfish-outlet.py status|on|off PDU/OUTLET,...", USAGE))
    try:
        main(sys.argv[1], sys.argv[2])
    except Failed as error:
        end(error)
    except (OSError, ValueError, configparser.Error) as error:
        end(Failed(" ".join(str(error).split())))
