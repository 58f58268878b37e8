"""What the pages tell people to write is what the code reads."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import encode_basic_auth, web
from aiohttp.test_utils import TestServer

from imageapi.spec.container import parse_container
from layercake.fleet.table import Table
from layercake.head import modules, settings
from layercake.inventory.load import load
from layercake.kraken.errors import OperationFailed, Unreachable
from layercake.moduleapi.service import MutationRequest
from layercake.modules import declared
from powerman.driver import PowerState, Unsupported
from powerman.drivers.command import CommandDriver, Programs
from powerman.settings import BmcSpec, Program

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str, language: str, beginning: str = "") -> list[str]:
    """The examples of a language on a page, those that begin so."""
    found = re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)
    return [text for text in found if text.startswith(beginning)]


def test_the_inventories_can_be_applied() -> None:
    readme = re.findall(
        r"^An inventory:\n\n((?:    .*\n)+)", (DOCS.parent / "README.md").read_text(), re.M
    )
    examples = [*blocks("howto/write-an-inventory.md", "yaml"), *map(textwrap.dedent, readme)]
    parts = modules.standard().parts
    assert [len(load(text, parts=parts).nodes) for text in examples] == [1, 4, 4]
    (programs,) = blocks("howto/power-by-a-program.md", "yaml", "# inventory")
    assert len(load(programs, parts=parts).nodes) == 9
    (warm,) = blocks("howto/too-warm.md", "yaml", "# inventory")
    assert len(load(warm, parts=parts).nodes) == 1


@pytest.mark.parametrize("page", ["howto/build-an-image.md", "howto/slurm.md"])
def test_the_containers_can_be_run(page: str) -> None:
    examples = blocks(page, "yaml", "# container.yaml")
    assert examples
    for text in examples:
        parse_container(yaml.safe_load(text))


@pytest.mark.parametrize(
    "page",
    [
        "howto/images-from-ceph.md",
        "howto/slurm.md",
        "howto/who-may-do-what.md",
        "howto/power-by-a-program.md",
    ],
)
def test_the_settings_can_be_read(page: str, tmp_path: Path) -> None:
    for text in blocks(page, "yaml"):
        if not text.startswith("#"):
            (tmp_path / settings.FILE_NAME).write_text(
                "interface: eth0\naddress: 10.1.0.1\n" + text
            )
            settings.load(tmp_path)


async def test_the_program_that_switches_machines_works(tmp_path: Path) -> None:
    relay, path = {"7": "off"}, tmp_path / "relay"
    path.write_text(blocks("howto/power-by-a-program.md", "sh")[0])
    path.chmod(0o755)

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != encode_basic_auth("admin", 'a b"\\c'):
            return web.Response(status=401)
        if request.method == "PUT":
            relay["7"] = await request.text()
        return web.Response(text=relay[request.match_info["name"]])

    app = web.Application()
    app.router.add_route("*", "/relay/{name}", answer)
    async with TestServer(app) as server:
        facts = {
            "driver": "command",
            "program": "relay",
            "username": "admin",
            "password": 'a b"\\c',
        }

        def driver(**changes: str) -> CommandDriver:
            record = {
                "name": "n1",
                "bmc": {**facts, "address": f"127.0.0.1:{server.port}/7", **changes},
            }
            return CommandDriver(
                BmcSpec.from_record("n1", record), Programs({"relay": Program(path=str(path))})
            )

        assert await driver().state() is PowerState.OFF
        await driver().on()
        assert await driver().state() is PowerState.ON and relay == {"7": "on"}
        with pytest.raises(OperationFailed, match="says no"):
            await driver(password="another").state()
        with pytest.raises(Unsupported):
            await driver().off(soft=True)
        with pytest.raises(Unreachable, match="connect"):
            await driver(address="127.0.0.1:1/7").state()


async def test_the_module_in_python_works() -> None:
    names: dict[str, Any] = {}
    exec(compile(blocks("howto/write-a-module.md", "python")[0], "cooling.py", "exec"), names)  # noqa: S102 (our own page)
    table = Table((*modules.built_in(), names["MODULE"]))
    assert table.owner["cooling-discover"] == "cooling"
    request = MutationRequest(1, "n0", "cooling-discover", 1, 5.0, {})
    assert await names["Cooling"]().mutate(request) == {"cooling": "OK"}


def test_the_module_of_a_program_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "module.yaml"
    path.write_text(blocks("howto/write-a-module.md", "yaml", "# /opt/warmth/module.yaml")[0])
    wanted = {"warmth": declared.SiteModule(command=["node", "main.js"], declares=str(path))}
    assert set(declared.load(wanted)) == {"warmth"}
