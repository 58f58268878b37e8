"""The programs in examples/power, through the driver that runs them: PDUs by real snmpsim and
Net-SNMP's tools, and by Redfish.

That for virtual machines is tried on a real libvirtd, in tests/vm.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import encode_basic_auth, web
from aiohttp.test_utils import TestServer
from patience import patience

from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable
from powerman.driver import LoginRefused, PowerState, Unsupported
from powerman.drivers.command import CommandDriver, Programs
from powerman.settings import BmcSpec, Program

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/power"
USER, PASSWORD = "admin", 'of the "pdu" \\ 7;#'
OID = "1.3.6.1.4.1.318.1.1.4.4.2.1.3"
ON, OFF = PowerState.ON, PowerState.OFF


def installed(name: str, directory: Path, settings: str) -> Programs:
    """A program as a site puts it on its head."""
    path = shutil.copy(EXAMPLES / name, directory)
    Path(f"{path}.ini").write_text(settings)
    return Programs({"pdu": Program(path=str(path), timeout_s=30.0)})


def driver(
    programs: Programs, address: str, password: str = PASSWORD, user: str = USER
) -> CommandDriver:
    """A machine that is at these outlets."""
    facts = {
        "driver": "command",
        "program": "pdu",
        "address": address,
        "username": user,
        "password": password,
    }
    return CommandDriver(BmcSpec.from_record("n1", {"name": "n1", "bmc": facts}), programs)


async def why(kind: type[LayercakeError], one: CommandDriver, verb: str = "state") -> str:
    """What people are told when it fails in this way."""
    with pytest.raises(LayercakeError) as caught:
        await {"state": one.state, "on": one.on, "off": one.off}[verb]()
    assert type(caught.value) is kind and PASSWORD not in str(caught.value)
    return caught.value.message


class Pdus:
    """Two simulated PDUs behind one agent each, and what Net-SNMP says of their outlets."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.ports, self._running = (
            directory,
            [0, 0],
            list[subprocess.Popen[bytes]](),
        )

    def start(self) -> None:
        """Starts them; returns when they answer."""
        for number in range(2):
            data = self.directory / f"data{number}"
            data.mkdir(parents=True)
            (data / "private.snmprec").write_text(
                "".join(f"{OID}.{n}|2:writecache|value=2\n" for n in range(1, 9))
            )
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
                free.bind(("127.0.0.1", 0))
                self.ports[number] = free.getsockname()[1]
            argv = [
                str(Path(sys.executable).with_name("snmpsim-command-responder")),
                f"--data-dir={data}",
                f"--cache-dir={self.directory}/cache{number}",
                f"--agent-udpv4-endpoint=127.0.0.1:{self.ports[number]}",
                "--process-user=root",
                "--process-group=root",
                f"--v3-user={USER}",
                f"--v3-auth-key={PASSWORD}",
                "--v3-auth-proto=SHA",
                f"--v3-priv-key={PASSWORD}",
                "--v3-priv-proto=AES",
            ]
            log = (self.directory / f"log{number}").open("wb")
            self._running.append(
                subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )
            log.close()
        until = time.monotonic() + patience(60)
        while any(self.outlets(number) is None for number in range(2)):
            assert time.monotonic() < until, (self.directory / "log0").read_text()
            time.sleep(0.1)

    def outlets(self, number: int) -> list[str] | None:
        """What all outlets of a PDU say, None if it says nothing."""
        done = subprocess.run(
            [
                "snmpget",
                "-v2c",
                "-c",
                "private",
                "-t",
                "1",
                "-r",
                "0",
                "-Oqv",
                f"127.0.0.1:{self.ports[number]}",
                *(f"{OID}.{n}" for n in range(1, 9)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.split() if done.returncode == 0 else None

    def set(self, number: int, outlet: int, value: int) -> None:
        """Somebody else switches one."""
        subprocess.run(
            [
                "snmpset",
                "-v2c",
                "-c",
                "private",
                f"127.0.0.1:{self.ports[number]}",
                f"{OID}.{outlet}",
                "i",
                str(value),
            ],
            check=True,
            capture_output=True,
        )

    def stop(self) -> None:
        """Ends them."""
        for process in self._running:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def pdus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pdus]:
    """The simulated PDUs."""
    found = Pdus(tmp_path_factory.mktemp("snmpsim"))
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def snmp(pdus: Pdus, tmp_path: Path) -> Programs:
    """The program for them: v3, v2c, and one that nothing is at."""
    for number in range(2):
        for outlet in range(1, 9):
            pdus.set(number, outlet, 2)
    how = f"state={OID}\nis_on=1\nis_off=2\ncommand={OID}\non=1\noff=2"
    return installed(
        "snmp-outlet.py",
        tmp_path,
        f"""
[pdu1]
host = 127.0.0.1:{pdus.ports[0]}
context = private   ; of the simulator
{how}
[pdu2]
host = 127.0.0.1:{pdus.ports[1]}
context = private
{how}
[old]
host = 127.0.0.1:{pdus.ports[0]}
version = 2c
{how}
[apc]
host = 127.0.0.1:{pdus.ports[0]}
version = 2c
model = apc
[dead]
host = 127.0.0.1:1
model = raritan
[odd]
model = apd
[none]
host = 127.0.0.1
[bad]
host = -v1
""",
    )


@pytest.mark.root
async def test_an_outlet_is_switched_by_snmp(snmp: Programs, pdus: Pdus) -> None:
    one = driver(snmp, "pdu1/3")
    assert await one.state() is OFF
    await one.on()
    assert await one.state() is ON and pdus.outlets(0) == ["2", "2", "1", "2", "2", "2", "2", "2"]
    await one.off()
    assert await one.state() is OFF and pdus.outlets(0) == ["2"] * 8
    community = driver(snmp, "old/4", "private", "")
    await community.on()
    assert await community.state() is ON and pdus.outlets(0) == [
        "2",
        "2",
        "2",
        "1",
        "2",
        "2",
        "2",
        "2",
    ]


@pytest.mark.root
async def test_the_outlets_of_a_machine_with_two_supplies_are_switched_together(
    snmp: Programs, pdus: Pdus
) -> None:
    one = driver(snmp, "pdu1/07,pdu1/8,pdu2/7")
    await one.on()
    assert (pdus.outlets(0), pdus.outlets(1)) == (["2"] * 6 + ["1", "1"], ["2"] * 6 + ["1", "2"])
    pdus.set(0, 7, 2)
    pdus.set(0, 8, 2)
    assert await one.state() is ON  # by its other supply
    await one.off()
    assert await one.state() is OFF and pdus.outlets(1) == ["2"] * 8


@pytest.mark.root
async def test_of_a_dead_pdu_the_other_one_is_still_switched(snmp: Programs, pdus: Pdus) -> None:
    one = driver(snmp, "dead/1,pdu1/1")
    assert "dead: " in await why(Unreachable, one, "on")
    assert pdus.outlets(0) == ["1"] + ["2"] * 7
    assert await one.state() is ON  # whatever the dead one would say
    pdus.set(0, 1, 2)
    assert "dead: " in await why(Unreachable, one)


@pytest.mark.root
async def test_what_goes_wrong_by_snmp_is_said_in_words(snmp: Programs) -> None:
    assert "Authentication failure" in await why(
        LoginRefused, driver(snmp, "pdu1/1", "another-password")
    )
    assert "Unknown user name" in await why(LoginRefused, driver(snmp, "pdu1/1", user="nobody"))
    assert "Timeout" in await why(Unreachable, driver(snmp, "old/1", "public"))
    assert "outlet 99 says 'No Such" in await why(OperationFailed, driver(snmp, "pdu1/99"))
    assert "outlet 1 says 'No Such" in await why(OperationFailed, driver(snmp, "apc/1", "private"))
    assert "has no [pdu9]" in await why(OperationFailed, driver(snmp, "pdu9/1"))
    assert "'pdu1/x' is no outlet" in await why(OperationFailed, driver(snmp, "pdu1/x"))
    assert "'apd', expected apc or" in await why(OperationFailed, driver(snmp, "odd/1"))
    assert "none has no model" in await why(OperationFailed, driver(snmp, "none/1"))
    assert "'-v1' is no host" in await why(OperationFailed, driver(snmp, "bad/1"))
    with pytest.raises(Unsupported):
        await driver(snmp, "pdu1/1").off(soft=True)


@pytest.mark.root
async def test_nobody_on_the_machine_reads_the_password_while_it_runs(
    snmp: Programs, tmp_path: Path
) -> None:
    """The tools of Net-SNMP take it as an argument, too: they are looked at from a directory in
    front of theirs in PATH."""
    spy = tmp_path / "bin/snmpget"
    spy.parent.mkdir()
    spy.write_text(
        '#!/bin/sh\n{ echo "$0 $*"; env; stat -c %a "$SNMPCONFPATH" "$SNMPCONFPATH"/*; } > '
        '"${0%/bin/*}/seen"\necho 1\n'
    )
    spy.chmod(0o755)
    program = (tmp_path / "snmp-outlet.py").read_text()
    assert '"PATH": os.environ.get("PATH", "/usr/bin")' in program
    (tmp_path / "snmp-outlet.py").write_text(
        program.replace('"PATH": ', f'"PATH": "{spy.parent}:" + ', 1).replace(
            "[tool,", f'["{spy.parent}/" + tool,'
        )
    )
    assert await driver(snmp, "pdu1/1").state() is ON
    seen = (tmp_path / "seen").read_text()
    assert PASSWORD not in seen and seen.splitlines()[-2:] == ["700", "600"]


class RedfishPdu:
    """A PDU as DSP2046 has it; `broken` is what an outlet answers instead."""

    def __init__(self) -> None:
        self.outlets = {"A1": "Off", "A2": "Off"}
        self.broken: dict[str, web.Response] = {}

    def app(self) -> web.Application:
        """Its service."""
        app = web.Application()
        app.router.add_get("/redfish/v1/PowerEquipment/RackPDUs/1/Outlets/{outlet}", self._get)
        app.router.add_post(
            "/redfish/v1/PowerEquipment/RackPDUs/1/Outlets/{outlet}/Actions/Outlet.PowerControl",
            self._post,
        )
        return app

    def _refused(self, request: web.Request) -> web.Response | None:
        outlet = request.match_info["outlet"]
        if request.headers.get("Authorization") != encode_basic_auth(USER, PASSWORD):
            return web.Response(status=401, text=f"wrong: {request.headers.get('Authorization')}")
        return self.broken.get(outlet) or (
            None if outlet in self.outlets else web.Response(status=404)
        )

    async def _get(self, request: web.Request) -> web.Response:
        outlet = request.match_info["outlet"]
        return self._refused(request) or web.json_response(
            {
                "@odata.id": request.path,
                "Id": outlet,
                "PowerState": self.outlets[outlet],
                "Actions": {
                    "#Outlet.PowerControl": {
                        "target": f"{request.path}/Actions/Outlet.PowerControl"
                    }
                },
            }
        )

    async def _post(self, request: web.Request) -> web.Response:
        if (refused := self._refused(request)) is None:
            self.outlets[request.match_info["outlet"]] = (await request.json())["PowerState"]
        return refused or web.Response(status=204)


@pytest.fixture
async def redfish(tmp_path: Path) -> AsyncIterator[tuple[Programs, RedfishPdu]]:
    """A PDU on loopback, and the program for it."""
    pdu = RedfishPdu()
    async with TestServer(pdu.app()) as server:
        settings = (
            f"[pdu1]\nurl = {server.make_url('/')}\n[dead]\nurl = "
            f"http://127.0.0.1:1\n[tls]\nurl = https://127.0.0.1:{server.port}\n"
        )
        yield (
            installed(
                "redfish-outlet.py", tmp_path, settings + "[file]\nurl = file:///etc/passwd\n"
            ),
            pdu,
        )


async def test_an_outlet_is_switched_by_redfish(redfish: tuple[Programs, RedfishPdu]) -> None:
    programs, pdu = redfish
    one = driver(programs, "pdu1/A1,pdu1/A2")
    assert await one.state() is OFF
    await one.on()
    assert await one.state() is ON and pdu.outlets == {"A1": "On", "A2": "On"}
    for state, found in {"Off": OFF, "PoweringOn": ON}.items():
        pdu.outlets = {"A1": "Off", "A2": state}
        assert await one.state() is found
    await one.off()
    assert await one.state() is OFF and pdu.outlets == {"A1": "Off", "A2": "Off"}


BROKEN: Mapping[str, tuple[Any, str]] = {
    "html": ({"text": "<html>", "content_type": "text/html"}, "is not JSON"),
    "list": ({"text": "[]"}, "is not JSON"),
    "state": ({"text": '{"PowerState": ["On"]}'}, "its PowerState is ['On']"),
    "nothing": ({"text": "{}"}, "its PowerState is None"),
    "error": ({"status": 503}, "HTTP status 503"),
    "elsewhere": ({"status": 302, "headers": {"Location": "http://127.0.0.2/"}}, "HTTP status 302"),
    "action": (
        {"text": '{"Actions": {"#Outlet.PowerControl": {"target": "//127.0.0.2/x"}}}'},
        "is no path of an action",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_what_is_no_answer_of_a_pdu_is_said_in_words(
    redfish: tuple[Programs, RedfishPdu], kind: str
) -> None:
    programs, pdu = redfish
    answer, words = BROKEN[kind]
    pdu.broken["A1"] = web.Response(**answer)
    assert words in await why(
        OperationFailed, driver(programs, "pdu1/A1"), "on" if kind == "action" else "state"
    )


async def test_what_goes_wrong_by_redfish_is_said_in_words(
    redfish: tuple[Programs, RedfishPdu],
) -> None:
    programs, _ = redfish
    assert "does not take" in await why(LoginRefused, driver(programs, "pdu1/A1", "another"))
    assert "HTTP status 404" in await why(OperationFailed, driver(programs, "pdu1/A9"))
    assert "refused" in await why(Unreachable, driver(programs, "dead/A1"), "off")
    assert "SSL" in await why(OperationFailed, driver(programs, "tls/A1"))
    assert "is no URL of a PDU" in await why(OperationFailed, driver(programs, "file/A1"))
    assert "has no [pdu9]" in await why(OperationFailed, driver(programs, "pdu9/A1"))
    assert "is no outlet" in await why(OperationFailed, driver(programs, "pdu1/.."))
