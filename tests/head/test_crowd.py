"""What was done to the running head with many connections: a real one, in a process of its own with
1024 file descriptors, as a service has them; the attacker is another process."""

from __future__ import annotations

import http.client
import json
import resource
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import patience

from tests.bench.abuse import Driver, Measured, head, under_attack

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from headclient import UnixConnection

IDLE = """
import asyncio, sys
async def main():
    held = []
    while True:
        try:
            held.append(await asyncio.open_connection(sys.argv[1], int(sys.argv[2]), local_addr=(sys.argv[3], 0)))
        except OSError:
            pass
        if len(held) == 999:
            print("they are there", flush=True)
            await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    directory = tmp_path_factory.mktemp("head")
    with head(directory, "127.0.0.1", 6000, "--bare") as (facts, process):
        told = json.loads(facts.read_text())
        facts.write_text(json.dumps(told | {"ports": [told["port"]]}))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
        yield facts, process


@pytest.fixture(scope="module")
def driver(site: tuple[Path, subprocess.Popen[bytes]]) -> Driver:
    return Driver(json.loads(site[0].read_text()))


def local(facts: dict[str, Any], path: str) -> Any:
    """A question of the CLI's."""
    connection = UnixConnection(facts["socket"], 20.0)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.status == 200, text
    return json.loads(text)


def test_999_idle_connections_stop_nobody_and_fill_no_log(
    site: tuple[Path, subprocess.Popen[bytes]], driver: Driver
) -> None:
    """They stopped joins and the local socket, and the log had 323,000 tracebacks."""
    path, process = site
    facts = json.loads(path.read_text())
    command = [sys.executable, "-c", IDLE, facts["address"], str(facts["port"])]
    attackers = [
        subprocess.Popen([*command, source], stdout=subprocess.PIPE)
        for source in ("127.0.0.1", "127.0.0.66")
    ]
    try:
        for attacker in attackers:
            assert attacker.stdout is not None and attacker.stdout.readline()
        measured = Measured()
        measured.add(driver, process.pid, 2.0)
        assert len(measured.joins) > 5 and not driver.failed
        assert local(facts, "/v1/status")["nodes"]
        descriptors = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        assert descriptors < 300, "two addresses have 32 places each"
        log = (path.parent / "head.log").read_text()
        assert "Traceback" not in log and len(log) < 20_000
    finally:
        for attacker in attackers:
            attacker.kill()
            attacker.communicate()


@pytest.mark.parametrize("name", ["hostile-text", "idle", "events", "history", "plans", "slow"])
def test_the_benchmark_of_abuse_has_honest_answers(
    site: tuple[Path, subprocess.Popen[bytes]], driver: Driver, name: str
) -> None:
    """How fast is for the benchmark to say (tests.bench.abuse); here nobody honest is refused, and
    all get on."""
    path, process = site
    with under_attack(name, path):
        measured = Measured()
        measured.add(driver, process.pid, 1.0)
    assert not driver.failed and len(measured.joins) > 2 and len(measured.answers) > 5
    assert process.poll() is None


def test_a_guess_costs_a_connection_and_they_are_counted(
    site: tuple[Path, subprocess.Popen[bytes]],
) -> None:
    facts = json.loads(site[0].read_text())
    tls = ssl.create_default_context(cafile=facts["ca"])
    answered = 0
    since = time.monotonic()
    for _ in range(300):
        try:
            plain = socket.create_connection(
                (facts["address"], facts["port"]), 10, ("127.0.0.77", 0)
            )
            with tls.wrap_socket(plain, server_hostname=facts["address"]) as link:
                link.sendall(
                    b"GET /v1/status HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer guess\r\n\r\n"
                    * 10
                )
                answer = http.client.HTTPResponse(link)
                answer.begin()
                assert answer.status == 401 and answer.headers["Connection"] == "close"
                answered += 1
        except (OSError, http.client.HTTPException):
            continue
    assert 45 <= answered <= 55 + 5 * (time.monotonic() - since), (
        "fifty at once, five a second from there on"
    )


def test_the_head_ends_in_order_while_strangers_are_there_and_has_logged_little(
    site: tuple[Path, subprocess.Popen[bytes]],
) -> None:
    path, process = site
    facts = json.loads(path.read_text())
    idle = [
        socket.create_connection((facts["address"], facts["port"]), 10, ("127.0.0.78", 0))
        for _ in range(20)
    ]
    process.send_signal(signal.SIGTERM)
    assert process.wait(patience(15)) == 0
    for link in idle:
        link.close()
    log = (path.parent / "head.log").read_text()
    assert "out of system resource" not in log and len(log) < 300_000
