"""Power by a program of the site's own: real programs, good ones and bad ones, through the whole
service."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from patience import patience

from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed, Unreachable
from layercake.moduleapi.service import FakeLink, MutationRequest
from powerman.driver import LoginRefused, Unsupported
from powerman.drivers.command import reason
from powerman.service import PowerService
from powerman.settings import BmcSpec, Limits, PowerSettings, Program, limit_s
from tests.support.inventory import bmc_of, load
from tests.support.site import site

PASSWORD = "s3cr3t-of-the-pdu"
OUTLET = """
state="$(dirname "$0")/state"
case "$1" in
    status) cat "$state";;
    on|off) echo "$1" > "$state";;
    *) echo "no $1 here" >&2; exit 64;;
esac
"""
"""An outlet."""


class Bench:
    """A service that knows n1, which the program `own` switches."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.path, self.link = directory, directory / "own", FakeLink()
        self.service = PowerService(polls=False)
        self.write(OUTLET)
        (directory / "state").write_text("off\n")

    def write(self, body: str, first: str = "#!/bin/sh", mode: int = 0o755) -> None:
        """Puts a program in the place of the one that is there."""
        self.path.unlink(missing_ok=True)
        self.path.write_text(f"{first}\n{body}")
        self.path.chmod(mode)

    async def start(self) -> None:
        """The service with a limit of two seconds for one run, and nothing that a breaker minds."""
        programs = {"own": Program(path=str(self.path), timeout_s=2.0, at_once=2)}
        limits = Limits(rate_per_s=1000, burst=1000, failures=1000)
        await self.service.start(
            self.link,
            site(data_dir=str(self.directory)),
            PowerSettings(programs=programs, limits=limits),
        )
        await self.knows("n1")

    async def knows(self, name: str, **changes: Any) -> None:
        """Tells the service of a node."""
        facts = {
            "driver": "command",
            "program": "own",
            "address": "pdu1/7",
            "username": "admin",
            "password": PASSWORD,
            **changes,
        }
        await self.service.node_changed(name, {"name": name, "firmware": "uefi", "bmc": facts})

    async def mutate(self, name: str, **params: Any) -> dict[str, str]:
        """One attempt."""
        return dict(await self.service.mutate(MutationRequest(1, "n1", name, 1, 60.0, params)))

    async def fails(self, verb: str = "status") -> LayercakeError:
        """How the driver's question ends."""
        with pytest.raises(LayercakeError) as caught:
            async with self.service.asking("n1") as managed:
                await {"status": managed.driver.state, "on": managed.driver.on}[verb]()
        return caught.value

    @property
    def state(self) -> str:
        """Of the outlet."""
        return (self.directory / "state").read_text().strip()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A running service."""
    made = Bench(tmp_path)
    await made.start()
    yield made
    await made.service.stop()


async def test_a_node_is_switched_and_what_it_is_is_read_back(bench: Bench) -> None:
    assert await bench.mutate("power-discover") == {"power": "OFF"}
    assert await bench.mutate("power-on") == {"power": "ON"} and bench.state == "on"
    assert await bench.mutate("power-off") == {"power": "OFF"} and bench.state == "off"
    (bench.directory / "state").write_text("On\n")
    status = await bench.service.status("n1")
    assert (status["power"], status["driver"], status["address"]) == (
        "ON",
        "command",
        "pdu1/7 (program own)",
    )
    assert not [kind for _, kind, _, _, _ in bench.link.events if kind != "power.state"]


async def test_one_that_takes_the_command_and_does_nothing_is_found_out(bench: Bench) -> None:
    bench.write("[ $1 != status ] || echo off")
    with pytest.raises(OperationFailed, match="took the command, and still says OFF"):
        await bench.service.mutate(MutationRequest(1, "n1", "power-on", 1, 3.0, {}))


async def test_a_program_without_a_soft_power_off_has_its_plug_pulled(bench: Bench) -> None:
    await bench.mutate("power-on")
    assert await bench.mutate("power-off", soft=True) == {"power": "OFF"}


async def test_secrets_are_on_standard_input_and_nowhere_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HEAD", "swordfish")
    told = bench.directory / "told"
    bench.write(
        f'{{ tr "\\0" "\\n" < /proc/$$/cmdline; echo --; cat; echo --; env; }} > {told}; echo on'
    )
    await bench.service.status("n1")
    arguments, given, environment = told.read_text().split("--\n")
    assert arguments.splitlines()[-2:] == ["status", "pdu1/7"]
    assert given == f"admin\n{PASSWORD}\n"
    names = {line.split("=")[0] for line in environment.splitlines()}
    assert {"LAYERCAKE_NODE", "LAYERCAKE_FIRMWARE", "LAYERCAKE_TIMEOUT_S", "PATH"} <= names
    assert PASSWORD not in arguments + environment and "swordfish" not in environment


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (
            "echo 'no such outlet' >&2; exit 1",
            OperationFailed,
            "status at pdu1/7 (program own): no such outlet (exit status 1)",
        ),
        ("exit 3", OperationFailed, "the program does not say why (exit status 3)"),
        ("kill -TERM $$", OperationFailed, "(signal 15)"),
        (
            "echo 'timed out' >&2; exit 69",
            Unreachable,
            "cannot reach pdu1/7 (program own): timed out",
        ),
        ("exit 77", LoginRefused, "as 'admin'"),
        ("exit 64", Unsupported, "the program knows no such thing"),
        ("echo maybe", OperationFailed, "the program says 'maybe', expected on or off"),
        ("printf 'on\\noff\\n'", OperationFailed, "expected on or off"),
        ("true", OperationFailed, "the program says 'nothing'"),
        ("printf '\\377\\000'", OperationFailed, "expected on or off"),
        ("yes", OperationFailed, "says more than 1,048,576 bytes"),
        ("yes >&2", OperationFailed, "says more than 1,048,576 bytes"),
        ("sleep 1000 & wait", Unreachable, "did not end status in 2 s"),
        (
            "trap '' TERM INT HUP; while :; do sleep 0.1; done",
            Unreachable,
            "did not end status in 2 s",
        ),
    ],
    ids=str,
)
async def test_what_goes_wrong_is_said_in_words(
    bench: Bench, body: str, kind: type[LayercakeError], words: str
) -> None:
    bench.write(body)
    error = await bench.fails()
    assert type(error) is kind and words in error.message
    bench.write(OUTLET)
    assert (await bench.service.status("n1", tell=True))["power"] == "OFF"


async def test_what_a_late_program_has_started_ends_with_it(bench: Bench) -> None:
    bench.write(f"sleep 1000 & echo $! > {bench.directory}/child; wait")
    await bench.fails()
    child = Path(f"/proc/{(bench.directory / 'child').read_text().strip()}/stat")
    async with asyncio.timeout(20):
        while child.exists() and child.read_text().split()[2] != "Z":
            await asyncio.sleep(0.02)


async def test_what_a_program_leaves_behind_holds_nobody(bench: Bench) -> None:
    bench.write(f"setsid sleep 1000 & echo $! > {bench.directory}/child; echo on")
    began = time.monotonic()
    assert (await bench.service.status("n1"))["power"] == "ON"
    assert time.monotonic() - began < patience(2.0)
    os.kill(int((bench.directory / "child").read_text()), 9)


async def test_a_complaint_is_cleaned(bench: Bench) -> None:
    bench.write(
        f"printf 'first\\nuser admin, \\033[31mpassword {PASSWORD}\\007 is wrong\\n\\n' >&2; exit 1"
    )
    error = await bench.fails("on")
    assert "user admin, password *** is wrong (exit status 1)" in error.message.replace("  ", " ")
    assert PASSWORD not in str(error) and error.message.isprintable()
    assert len(reason("x" * 4000, "")) == 200 and reason("\n \n", "p") == ""


async def test_a_program_that_cannot_be_trusted_is_not_run(bench: Bench) -> None:
    bench.write(OUTLET, mode=0o777)
    assert "can be changed by others" in (await bench.fails()).message
    bench.write(OUTLET, mode=0o755)
    os.chown(bench.path, 12345, 0)
    assert "can be changed by others" in (await bench.fails()).message
    bench.write(OUTLET, mode=0o644)
    assert "Permission denied" in (await bench.fails()).message
    bench.write(OUTLET, first="#!/no/such/shell")
    assert "No such file" in (await bench.fails()).message
    bench.path.unlink()
    assert "No such file" in (await bench.fails()).message
    bench.path.mkdir()
    assert "is not a file" in (await bench.fails()).message


async def test_no_more_run_at_once_than_config_yaml_says(bench: Bench) -> None:
    bench.write(f"""d={bench.directory}/running; mkdir -p $d; touch $d/$$
        ls $d | wc -l >> {bench.directory}/counts; sleep 0.1; rm $d/$$; echo on""")
    names = [f"m{n}" for n in range(8)]
    for name in names:
        await bench.knows(name, address=f"pdu1/{name}")
    await asyncio.gather(*(bench.service.status(name) for name in names))
    assert {int(line) for line in (bench.directory / "counts").read_text().split()} <= {1, 2}


async def test_an_inventory_names_no_program_by_itself(bench: Bench) -> None:
    await bench.knows("n1", program="owm")
    (text,) = [text for _, kind, text, _, _ in bench.link.events if kind == "power.no-bmc"]
    assert "config.yaml has no program 'owm' in power.programs" in text and "own" in text
    with pytest.raises(InputError, match="has no program 'owm'"):
        await bench.service.status("n1")


@pytest.mark.parametrize(
    "changes",
    [
        {"address": "-rf"},
        {"address": "a b"},
        {"address": "a\nb"},
        {"address": "a\x1b[2J"},
        {"address": "$(reboot)"},
        {"address": "x" * 201},
        {"program": ""},
        {"program": "/bin/sh"},
        {"program": "../own"},
        {"program": 7},
        {"password": "two\nlines"},
    ],
    ids=str,
)
def test_what_a_program_could_take_for_something_else_does_not_reach_it(
    changes: dict[str, Any],
) -> None:
    facts = {
        "driver": "command",
        "program": "own",
        "address": "pdu1/7",
        "password": None,
        **changes,
    }
    with pytest.raises(InputError, match="cannot manage the power of n1") as caught:
        BmcSpec.from_record("n1", {"name": "n1", "bmc": facts})
    assert caught.value.message.isprintable() and "two" not in caught.value.message


async def test_what_only_a_bmc_has_is_refused_in_words(bench: Bench) -> None:
    async with bench.service.asking("n1") as managed:
        driver = managed.driver
        for question in (driver.sensors, driver.event_log, driver.hardware, driver.log_mark):
            with pytest.raises(Unsupported, match="its power is switched by a program"):
                await question()
    (seen,) = await bench.service.inspect_bmcs(5.0)
    assert (seen.result, seen.clock_s) == ("ok", None)
    assert "is switched by a program" in (await bench.service.set_password("n1", "x" * 12))["left"]


def test_a_slow_program_gives_each_step_more_time() -> None:
    spec = BmcSpec.from_record(
        "n1", {"name": "n1", "bmc": {"driver": "command", "program": "own", "address": "pdu1/7"}}
    )
    slow = PowerSettings(programs={"own": Program(path="/x", timeout_s=24.0)})
    assert limit_s("power-on", slow, spec) == 3 * limit_s("power-on", PowerSettings(), spec)


def test_outlets_count_up_and_no_two_nodes_share_one() -> None:
    rack = """
defaults: {bmc: {driver: command, program: apc}}
nodes:
  n[0-1]: {mac: "52:54:00:00:00:10+", ip: 10.1.0.10+, bmc: {address: "pdu1/08,pdu2/08+"}}
  n2: {mac: "52:54:00:00:00:12", ip: 10.1.0.12, bmc: {address: "%s"}}
"""
    inventory = load(rack % "pdu2/8")  # another text: what a program makes of it is its own affair
    bmcs = [bmc_of(inventory, name) for name in ("n0", "n1")]
    assert [found and found.address for found in bmcs] == ["pdu1/08,pdu2/08", "pdu1/09,pdu2/09"]
    with pytest.raises(InventoryErrors, match="pdu2/09"):
        load(rack % "pdu3/1,pdu2/09")
