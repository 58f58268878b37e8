"""A simulation whose dashboard a browser reaches: the link, the certificate, what simulated nodes
cannot do, and two at once."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from layercake.api.simulated import CALLS, ROUTES
from layercake.kraken.errors import OperationFailed
from layercake.moduleapi.tls_client import OutgoingConnections
from tests.sim.launched import Launched, launched
from tests.sim.played import wait_until

pytestmark = pytest.mark.root
NODE = "r0000n03"


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    """One simulation for all tests of this file, with a free port."""
    with launched(
        tmp_path_factory.mktemp("s"), "--nodes", "6", "--listen", "127.0.0.1:0"
    ) as simulation:
        simulation.line("#ticket=")
        yield simulation


def trusting(sim: Launched) -> ssl.SSLContext:
    """Trusts the simulation's authority, and checks the name."""
    return ssl.create_default_context(cafile=str(sim.directory / "pki" / "ca.pem"))


def ask(
    sim: Launched,
    url: str,
    path: str,
    *,
    host: str = "",
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], Any]:
    """What is answered: status, headers, body."""
    place = urlsplit(url)
    connection = http.client.HTTPSConnection(
        host or str(place.hostname), place.port, context=trusting(sim), timeout=60
    )
    origin = f"https://{host or place.hostname}:{place.port}"
    try:
        connection.request(
            "GET" if body is None else "POST",
            path,
            None if body is None else json.dumps(body),
            {
                "Origin": origin,
                "X-Layercake": "1",
                "Content-Type": "application/json",
                **(headers or {}),
            },
        )
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), json.loads(answer.read() or b"null")
    finally:
        connection.close()


def test_the_last_line_is_a_link_that_signs_in_once_and_the_page_hears_of_events(
    sim: Launched,
) -> None:
    url = sim.line("#ticket=")
    before = sim.lines[: sim.lines.index(url)]
    assert f"layercake --socket {sim.directory}/api.sock dashboard" in "\n".join(before)
    assert url.startswith("https://127.0.0.1:"), url
    ticket = {"ticket": url.partition("#ticket=")[2]}

    status, _, answer = ask(
        sim, url, "/dashboard/session", body=ticket, headers={"Origin": "https://evil.example"}
    )
    assert status == 403, answer
    status, headers, answer = ask(sim, url, "/dashboard/session", body=ticket)
    assert (status, answer["role"]) == (200, "admin")
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert ask(sim, url, "/dashboard/session", body=ticket)[0] == 401, "a link is good once"

    status, _, answer = ask(sim, url, "/v1/status", headers={"Cookie": cookie})
    assert status == 200 and answer["nodes"]["total"] == 6
    place = urlsplit(url)

    async def first_event() -> Any:
        origin = f"https://127.0.0.1:{place.port}"
        address = f"wss://127.0.0.1:{place.port}/v1/events/ws"
        async with (
            contextlib.aclosing(OutgoingConnections()) as connections,
            asyncio.timeout(120),
            connections.session(headers={"Cookie": cookie, "Origin": origin}) as client,
            client.ws_connect(address, ssl=trusting(sim)) as events,
        ):
            await asyncio.to_thread(
                sim.api.request, "POST", "/v1/nodes/state", {"range": "r0000n05", "state": "off"}
            )
            return await events.receive_json()

    assert asyncio.run(first_event())


def test_another_link_is_for_the_same_place(sim: Launched) -> None:
    url = sim.api.request("POST", "/v1/session/ticket", {})["url"]
    assert url.partition("#")[0] == sim.line("#ticket=").partition("#")[0]
    assert (
        ask(sim, url, "/dashboard/session", body={"ticket": url.partition("#ticket=")[2]})[0] == 200
    )


def test_the_certificate_is_for_a_tunnel_too_and_has_the_fingerprint_that_is_printed(
    sim: Launched,
) -> None:
    url = sim.line("#ticket=")
    assert (
        ask(sim, url, "/dashboard/session", host="localhost", body={"ticket": "worth nothing"})[0]
        == 401
    )
    with (
        socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=60) as plain,
        trusting(sim).wrap_socket(plain, server_hostname="::1") as tls,
    ):
        certificate = tls.getpeercert(binary_form=True)
    assert certificate is not None
    printed = next(
        line for line in sim.lines if re.fullmatch(r"\s*([0-9A-F]{2}:){31}[0-9A-F]{2}", line)
    )
    assert printed.strip().replace(":", "").lower() == hashlib.sha256(certificate).hexdigest()


def test_a_port_that_is_in_use_is_said_before_anything_is_made(
    sim: Launched, tmp_path: Path
) -> None:
    port = urlsplit(sim.line("#ticket=")).port
    with launched(tmp_path, "--listen", f"127.0.0.1:{port}") as other:
        assert other.process.wait(60) == 2
        assert "port in use" in other.line(f"cannot listen on 127.0.0.1:{port}")
        assert f"such as {(port or 0) + 1}" in other.line("hint:")
    assert other.left() == []


def test_a_second_one_beside_it_and_an_interrupt_leaves_nothing(
    sim: Launched, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with launched(tmp_path_factory.mktemp("s"), "--nodes", "3", "--listen", "127.0.0.1:0") as other:
        url = other.line("#ticket=")
        assert (
            ask(other, url, "/dashboard/session", body={"ticket": url.partition("#ticket=")[2]})[0]
            == 200
        )
        assert other.end(signal.SIGINT) == 0
    assert other.left() == []
    assert sim.api.request("GET", "/v1/status")["nodes"]["total"] == 6


NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]


def test_without_root_it_runs_in_a_user_namespace() -> None:
    probe = [
        *NOBODY,
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        "--",
        sys.executable,
        "-c",
        "import layercake.sim.play",
    ]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(
            "nobody may not make user namespaces here, or not read the sources: "
            f"{done.stderr.strip()[-200:]}"
        )
    with tempfile.TemporaryDirectory(prefix="sim") as place:
        os.chown(place, 65534, 65534)
        with launched(Path(place), "--nodes", "3", "--listen", "127.0.0.1:0", user=NOBODY) as other:
            url = other.line("#ticket=")
            assert (
                ask(
                    other, url, "/dashboard/session", body={"ticket": url.partition("#ticket=")[2]}
                )[0]
                == 200
            )
            words = [
                sys.executable,
                "-m",
                "layercake.cli.main",
                "--socket",
                str(other.directory / "api.sock"),
                "status",
            ]
            status = subprocess.run([*NOBODY, *words], capture_output=True, text=True, check=False)
            assert "nodes     3:" in status.stdout, status.stderr
            assert other.end() == 0
        assert other.left() == []


BODIES: dict[str, Any] = {
    "/v1/nodes/{name}/exec": {"command": ["true"]},
    "/v1/nodes/copy": {"range": NODE, "path": "/tmp/x", "content": {"base64": "eA=="}},
    "/v1/nodes/{name}/disks/wipe": {"disk": "sda", "mark": "0"},
    "/v1/tpms/accept": {"range": NODE},
    "/v1/machines/accept": {"range": NODE},
    "/v1/machines/scan": {"network": "10.2.0.0/24"},
    "/v1/power/cap": {"range": NODE, "watts": 200},
    "/v1/power/setup": {"range": NODE},
    "/v1/nodes/{name}/capture": {"seconds": 1, "by": "a test"},
}
SAID = rf"cannot [a-zA-Z' ]+( {NODE}|one)?: ({NODE} is|one is|all nodes here are) simulated"


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_what_a_simulated_node_cannot_do_says_so(sim: Launched, method: str, path: str) -> None:
    image = path.startswith("/v1/images/{name}")
    place = path.replace("{name}", "one" if image else NODE).replace("{mac}", NODE)
    query = (
        f"?range={NODE}"
        if path in ("/v1/power/cap", "/v1/consoles", "/v1/consoles/search", "/v1/logs")
        and method == "GET"
        else ""
    )
    with pytest.raises(OperationFailed, match=SAID) as caught:
        sim.api.request(method, place + query, BODIES.get(path) if method == "POST" else None)
    assert " 403 " in str(caught.value) and ROUTES[method, path] in str(caught.value)


def test_a_simulated_node_is_released(sim: Launched) -> None:
    sim.line("6/6 converged")
    sim.api.request("POST", "/v1/nodes/release", {"range": NODE})
    assert "release" in sim.api.request("GET", f"/v1/nodes/{NODE}/releases")["held"]

    def ended() -> bool:
        said = sim.api.request("GET", f"/v1/nodes/{NODE}/releases")
        assert said["releases"][0]["state"] in ("running", "done"), said
        return not said["held"]

    wait_until(ended, 120.0)
    steps = sim.api.request("GET", f"/v1/nodes/{NODE}/releases")["releases"][0]["steps"]
    assert {step["result"] for step in steps} <= {"done", "left"}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_a_simulated_node_cannot_answer_says_so(sim: Launched, name: str) -> None:
    of = "" if name == "power.scan" else NODE
    with pytest.raises(OperationFailed, match=SAID) as caught:
        sim.api.request("POST", f"/v1/calls/{name}", {"range": of})
    assert CALLS[name] in str(caught.value)


@pytest.mark.parametrize(
    ("method", "path"), [key for key in ROUTES if key[1].startswith("/v1/nodes/{name}/")]
)
def test_a_node_that_does_not_exist_is_not_called_simulated(
    sim: Launched, method: str, path: str
) -> None:
    place = path.replace("{name}", "nosuch")
    with pytest.raises(OperationFailed, match="cannot find node 'nosuch'") as caught:
        sim.api.request(method, place, BODIES.get(path) if method == "POST" else None)
    assert " 404 " in str(caught.value) and "simulated" not in str(caught.value)


def test_nodes_of_a_range_that_do_not_exist_are_not_called_simulated(sim: Launched) -> None:
    for body in ({"range": "nosuch"}, {"range": f"{NODE},nosuch"}):
        with pytest.raises(OperationFailed, match="there is no node nosuch") as caught:
            sim.api.request("POST", "/v1/power/setup", body)
        assert " 400 " in str(caught.value)
    with pytest.raises(OperationFailed, match="there is no node nosuch"):
        sim.api.request("GET", "/v1/power/cap?range=nosuch")
