"""What config.yaml demands of everybody who comes over the network: a client certificate, the one
token that is left; and the site's name in each record."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from layercake.agents import pki
from layercake.cli.main import main
from layercake.features.access.audit import Audit
from layercake.features.access.settings import AccessSettings, AuditSettings
from layercake.head import settings as head_settings
from layercake.inventory.problems import InventoryErrors
from tests.access.conftest import OWN, rack
from tests.support.api import served, token
from tests.support.world import World


class Network:
    """A head on its TLS port. `folder` holds its socket, and certificates."""

    def __init__(self, world: World, url: str, folder: Path) -> None:
        self.world = world
        self.url = url
        self.folder = folder

    async def certificate(self, *options: str) -> int:
        """`layercake token certificate own.pem` by root on the head; the exit code."""
        own = [str(self.folder / "own.pem"), *options]
        return await asyncio.to_thread(
            main, ["--socket", str(self.folder / "s"), "token", "certificate", *own]
        )

    async def ticket(self) -> str:
        """What a link of `layercake dashboard` has."""
        async with (
            aiohttp.ClientSession(
                "http://head", connector=aiohttp.UnixConnector(str(self.folder / "s"))
            ) as client,
            client.post("/v1/session/ticket", json={}) as answer,
        ):
            return str((await answer.json())["url"]).rpartition("ticket=")[2]

    async def status(self, method: str, path: str, *, certificate: bool, **request: Any) -> int:
        """The status of an answer to a client with own.pem, or without."""
        context = ssl.create_default_context(cafile=str(self.world.directory / "pki" / "ca.pem"))
        if certificate:
            context.load_cert_chain(self.folder / "own.pem")
        async with (
            aiohttp.ClientSession() as client,
            client.request(method, self.url + path, ssl=context, **request) as answer,
        ):
            return int(answer.status)


@pytest.fixture
async def network(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Network]:
    """A head that demands certificates."""
    folder = tmp_path_factory.mktemp("c")
    pki.create(tmp_path / "pki", "127.0.0.1")
    async with rack(tmp_path, access=AccessSettings(client_certificates=True)) as world:
        world.head.settings = msgspec.structs.replace(world.head.settings, socket=str(folder / "s"))
        api = world.head.api()
        await api.start()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(api.stop)
            yield Network(world, f"https://127.0.0.1:{api.port}", folder)


async def test_a_token_needs_its_certificate_where_all_do(network: Network) -> None:
    headers = await token(network.world.head, "ann", "viewer")
    assert await network.certificate() == 0
    asked = ("GET", "/v1/nodes")
    assert await network.status(*asked, certificate=False, headers=headers) == 401
    assert await network.status(*asked, certificate=True, headers=headers) == 401, "root's own"
    assert await network.status(*asked, certificate=True) == 401, "a certificate alone"
    made = {"name": "bob", "role": "viewer", "certificate": True}
    async with (
        aiohttp.ClientSession(
            "http://head", connector=aiohttp.UnixConnector(str(network.folder / "s"))
        ) as client,
        client.post("/v1/tokens", json=made) as answer,
    ):
        found = await answer.json()
    (network.folder / "own.pem").write_text(found["tls"]["cert"] + found["tls"]["key"])
    headers = {"Authorization": f"Bearer {found['token']}"}
    assert await network.status(*asked, certificate=True, headers=headers) == 200


@pytest.mark.parametrize(
    ("options", "expected"), [((), 200), (("--person", "oidc:somebody"), 401)], ids=["own", "other"]
)
async def test_a_browser_needs_the_certificate_of_its_person(
    network: Network, options: tuple[str, ...], expected: int
) -> None:
    assert await network.certificate(*options) == 0
    headers = {"Origin": network.url, "X-Layercake": "1"}
    for certificate, status in ((False, 401), (True, expected)):
        body = {"ticket": await network.ticket()}
        found = await network.status(
            "POST", "/dashboard/session", certificate=certificate, json=body, headers=headers
        )
        assert found == status


@pytest.mark.parametrize("who", ["ann", "token:ann", "oidc:", "local:a\nb", "oidc:" + "x" * 256])
async def test_a_certificate_is_for_a_person(
    network: Network, who: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await network.certificate("--person", who) == 2
    assert "it is no person" in capsys.readouterr().err


async def test_all_tokens_but_one_are_switched_off(tmp_path: Path) -> None:
    async with rack(tmp_path) as world:
        tokens = {name: await token(world.head, name, "admin") for name in ("ann", "glass")}
        world.settings = msgspec.structs.replace(
            world.settings, access=AccessSettings(emergency_token="glass")
        )
        await world.restart()
        async with served(world.head, local=False) as api:
            for name, expected in (("ann", 401), ("glass", 200)):
                async with api.get("/v1/nodes", headers=tokens[name]) as answer:
                    assert answer.status == expected, name
            async with api.post(
                "/v1/tokens", json={"name": "bob", "role": "viewer"}, headers=tokens["glass"]
            ) as answer:
                assert answer.status == 400
                assert "all tokens but glass are switched off" in (await answer.json())["error"]


async def test_each_record_names_the_site(tmp_path: Path) -> None:
    async with rack(tmp_path, audit=AuditSettings(site="Jülich 2")) as world:
        headers = await token(world.head, "ann", "admin")
        async with served(world.head, local=False) as api:
            async with api.post("/v1/nodes/clear", json={"range": OWN}, headers=headers) as answer:
                assert answer.status == 200
            async with api.get("/v1/audit", headers=headers) as answer:
                [shown] = (await answer.json())["audit"]
        [record] = await world.head.part(Audit).read(0, 0.0, 10)
        assert record.site == shown["site"] == "Jülich 2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("access:\n  emergency_token: Break Glass\n", "is no name of a token"),
        ("access:\n  client_certificates: maybe\n", "access.client_certificates"),
        ('audit:\n  site: "a\\nb"\n', "is no name of a site"),
        ("oidc:\n  acr: gold\n", "expected a list of words"),
        ("oidc:\n  amr: [mfa, 'two words']\n", "each of them is one word"),
    ],
)
def test_a_mistake_has_its_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.yaml").write_text("interface: eth0\naddress: 10.1.0.1\n" + text)
    with pytest.raises(InventoryErrors) as caught:
        head_settings.load(tmp_path)
    [problem] = caught.value.problems
    assert problem.line == 4 and said in problem.message
