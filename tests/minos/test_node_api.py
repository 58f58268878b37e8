"""The node's own API over real TLS: who is let in, containers, logs, commands, objects."""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from smallimages import build_plain_image

from imageapi.node.container.process import alive
from layercake.agents import pki
from layercake.agents.pki import Authority, name_of
from layercake.head.modules import standard
from layercake.kraken.events import EventKind, Severity
from layercake.kraken.variables import Layout
from layercake.kraken.wire import TO_HEAD, TO_NODE, bearer
from layercake.node.serving import Serving
from minos.agent.http.server import PATIENCE, BadRequest, parse_request, unquote
from minos.agent.state import Config, Session
from minos.events import NODE_API
from tests.support.images import Node, eventually, open_handles, spec_of, used_loops
from tests.support.namespace import run_as_agent
from tests.support.nodeclient import NodeClient

UUID, KEY, NUMBER = "0f8fad5b-d9cb-469f-a165-70867728950e", b"k" * 32, 77
Ask = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plain_image(tmp_path_factory.mktemp("i") / "one.squashfs", "one")


class Served:
    """A node whose API is served, and its head's credentials."""

    def __init__(self, run: Path, directory: Path) -> None:
        self.node = Node(run)
        pki.create(directory, "127.0.0.1")
        self.authority = directory / "ca.pem"
        tls = Authority(directory).issue(UUID, NUMBER)
        assert tls is not None
        config = Config(UUID, "n1", "", "https://h", "", "token", self.authority, run, "boot", "1")
        session = Session(
            NUMBER,
            KEY,
            1,
            Layout(standard().variables),
            1.0,
            4.0,
            ("h", 1),
            (tls["cert"], tls["key"]),
        )
        self.port = 0
        Serving(config, self.node.images, self.told, 0).start(session)

    def told(
        self, kind: EventKind, text: str, severity: Severity | None = None, **data: Any
    ) -> None:
        assert kind is NODE_API, text
        self.port = data["port"]

    def client(
        self, credential: str | None = None, name: str = name_of(UUID, NUMBER)
    ) -> NodeClient:
        good = bearer(KEY, bytes.fromhex(UUID.replace("-", "")), NUMBER, TO_NODE)
        return NodeClient(
            self.port, self.authority, name, good if credential is None else credential
        )

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        return self.client().ask(method, path, body)


def said(lines: list[dict[str, Any]], kind: str = "out") -> str:
    return b"".join(base64.b64decode(line[kind]) for line in lines if kind in line).decode()


@pytest.mark.parametrize("text", ["%", "%2", "%zz", "%ff"])
def test_unsound_paths_are_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        unquote(text)


def test_requests_are_taken_apart() -> None:
    found = parse_request(b"GET /a%2Fb?x=1+2&y=%26 HTTP/1.1\r\nHost: h\r\nX-Y:  z ")
    assert (found.method, found.path, found.query, found.headers["x-y"]) == (
        "GET",
        "/a/b",
        {"x": "1 2", "y": "&"},
        "z",
    )
    for bad in (b"", b"GET", b"GET / FTP/1.0", b"GET http://h/ HTTP/1.1", b"\xff / HTTP/1.1"):
        with pytest.raises(BadRequest):
            parse_request(bad)


@pytest.mark.root
def test_only_the_head_is_served(tmp_path: Path) -> None:
    def body(run: Path) -> None:
        served = Served(run, tmp_path / "pki")
        node = bytes.fromhex(UUID.replace("-", ""))
        bad = [
            "",
            "Bearer x",
            bearer(KEY, node, NUMBER, TO_HEAD),
            bearer(KEY, node, NUMBER - 1, TO_NODE),
            bearer(b"x" * 32, node, NUMBER, TO_NODE),
            bearer(KEY, bytes(16), NUMBER, TO_NODE),
        ]
        for credential in bad:
            status, answer = served.client(credential).ask("GET", "/v1/status")
            assert status == 401 and answer["error"] == "only the head is served", credential
        with pytest.raises(
            ssl.SSLCertVerificationError
        ):  # another session's certificate is not this one's
            served.client(name=name_of(UUID, NUMBER - 1)).ask("GET", "/v1/status")
        assert served.ask("GET", "/v1/status")[1]["node"] == UUID
        assert (run / ".api.pem").exists() is False
        assert (
            served.ask("GET", "/etc/passwd")[0] == 404
            and served.ask("DELETE", "/v1/exec")[0] == 405
        )
        large = served.client()
        large.putrequest("POST", "/v1/exec")
        for header in (*large.fields.items(), ("Content-Length", "2000000")):
            large.putheader(*header)
        large.endheaders()
        assert large.getresponse().status == 413
        large.close()

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_containers_logs_and_commands(tmp_path: Path, image: Path) -> None:
    def body(run: Path) -> None:
        served = Served(run, tmp_path / "pki")
        node, ask = served.node, served.ask
        assert node.run(spec_of(image, "app", env=(("COLOUR", "blue"),))) == "ACTIVE"
        assert [c["name"] for c in ask("GET", "/v1/containers")[1]["containers"]] == ["app"]
        assert ask("GET", "/v1/containers/app")[1]["state"] == "running"
        status, answer = ask("GET", "/v1/containers/nope")
        assert status == 404 and "there are: app" in answer["error"]
        eventually(lambda: "one line 1" in ask("GET", "/v1/containers/app/log?lines=5")[1])

        paths = ask("GET", "/v1/openapi.json")[1]["paths"]
        assert {"/v1/exec", "/v1/containers/{name}/log", "/imageapi/v1/mount/{id}"} <= paths.keys()

        script = "echo $COLOUR; echo no >&2; ls /init; exit 4"
        status, lines = ask(
            "POST", "/v1/exec", {"container": "app", "command": ["sh", "-c", script]}
        )
        assert (
            said(lines) == "blue\n/init\n"
            and said(lines, "err") == "no\n"
            and lines[-1] == {"exit": 4}
        )
        lines = ask("POST", "/v1/exec", {"container": "app", "command": ["ps"]})[1]
        assert "init" in said(lines) and "pytest" not in said(lines), (
            "it is in the container's own pid namespace"
        )
        lines = ask("POST", "/v1/exec", {"command": ["cat", "/proc/self/mountinfo"]})[1]
        assert str(run) in said(lines), "without a container it is the node itself"
        large = ask("POST", "/v1/exec", {"command": ["head", "-c", "3000000", "/dev/zero"]})[1]
        assert len(said(large)) == 3_000_000 and large[-1] == {"exit": 0}

        assert ask("POST", "/v1/exec", {"command": ["/no/such"]})[0] == 502
        refused: list[dict[str, Any]] = [
            {},
            {"command": []},
            {"command": "ls"},
            {"command": ["ls"], "timeout_s": 0},
            {"command": ["a\0b"]},
        ]
        for bad in refused:
            assert ask("POST", "/v1/exec", bad)[0] == 400, bad
        assert ask("POST", "/v1/exec", {"command": ["ls"], "container": "nope"})[0] == 404
        lines = ask("POST", "/v1/exec", {"command": ["sleep", "60"], "timeout_s": 0.3})[1]
        assert lines[-1] == {"error": "it took too long and was killed"}
        node.images.stop_all()

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_a_log_is_followed_and_a_command_ends_with_its_listener(
    tmp_path: Path, image: Path
) -> None:
    def body(run: Path) -> None:
        served = Served(run, tmp_path / "pki")
        node = served.node
        handles = open_handles()
        node.run(spec_of(image, "app"))
        client = served.client()
        answer = client.open("GET", "/v1/containers/app/log?follow=1&lines=2")
        text = b""
        while b"one line 3" not in text:  # the image says a line each second
            text += answer.read1(100)
        node.images.stop_all()
        assert answer.read().endswith(b"one ends\n"), "it ends with the container"
        client.close()
        answer.close()
        eventually(lambda: open_handles() == handles)

        client = served.client()
        answer = client.open(
            "POST", "/v1/exec", {"command": ["sh", "-c", "echo $$; sleep 600"], "timeout_s": 600}
        )
        pid = int(base64.b64decode(eval(answer.readline())["out"]))  # noqa: S307 - our own line
        assert Path(f"/proc/{pid}").exists()
        client.close()
        answer.close()
        eventually(lambda: not Path(f"/proc/{pid}").exists())
        eventually(lambda: open_handles() == handles)

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_objects_over_rest(tmp_path: Path, image: Path) -> None:
    def body(run: Path) -> None:
        ask = Served(run, tmp_path / "pki").ask
        status, made = ask("POST", "/imageapi/v1/mount", {"kind": "uri", "uri": f"file://{image}"})
        assert status == 201 and (Path(made["place"]) / "init").exists()
        attachment = made["parts"][0]
        assert ask("GET", f"/imageapi/v1/attach/{attachment}")[1]["holders"] == [made["id"]]
        status, answer = ask("DELETE", f"/imageapi/v1/attach/{attachment}")
        assert status == 403 and f"held by {made['id']}" in answer["error"]
        assert ask("POST", "/imageapi/v1/mount", {"kind": "magic"})[0] == 400
        assert ask("DELETE", f"/imageapi/v1/mount/{made['id']}")[0] == 200
        assert (
            ask("GET", "/imageapi/v1/attach")[1]
            == ask("GET", "/imageapi/v1/mount")[1]
            == {"objects": []}
        )
        assert ask("GET", "/imageapi/v1/mount/m99")[0] == 404

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_container_objects(tmp_path: Path, image: Path) -> None:
    def body(run: Path) -> None:
        served, loops = Served(run, tmp_path / "pki"), used_loops()
        ask, base = served.ask, "/imageapi/v1/container"
        nested = {
            "kind": "overlay",
            "size": "4m",
            "lower": [{"kind": "uri", "uri": f"file://{image}"}],
        }
        wanted = {
            "name": "job",
            "mount": nested,
            "state": "created",
            "env": {"A": "b"},
            "stop_timeout_s": 5,
        }
        status, made = ask("POST", base, wanted)
        assert status == 201 and (made["state"], made["id"]) == ("created", "c1")
        status, answer = ask("DELETE", f"/imageapi/v1/mount/{made['parts'][0]}")
        assert status == 403 and "held by c1" in answer["error"]
        assert ask("POST", f"{base}/c1/state", {"state": "running"})[1]["state"] == "running"
        eventually(lambda: "one line 1" in ask("GET", f"{base}/c1/log")[1])

        again = Node(run)  # another agent: what runs is kept, and what it stands on
        assert again.images.adopt() == "IDLE"
        assert (
            again.images.containers.view("c1")["state"] == "running"
            and len(again.images.objects.views()) == 3
        )

        shared = ask(
            "POST",
            base,
            {"name": "two", "mount": {"id": made["parts"][0]}, "command": ["sh", "-c", "exit 3"]},
        )[1]
        eventually(lambda: ask("GET", f"{base}/{shared['id']}")[1]["state"] == "dead")
        assert ask("GET", f"{base}/{shared['id']}")[1]["status"] == 3
        assert ask("POST", f"{base}/{shared['id']}/state", {"state": "running"})[0] == 403, (
            "it runs once"
        )
        assert ask("POST", f"{base}/c1/state", {"state": "exited"})[1]["status"] == 0
        for bad in (
            {"name": "x"},
            {"name": "../x", "mount": nested},
            {"name": "x", "mount": nested, "state": "dead"},
            {"name": "x", "mount": nested, "image": "y"},
            {"name": "x", "mount": {"id": "m99"}},
        ):
            assert ask("POST", base, bad)[0] in (400, 404), bad
        assert ask("POST", base, {"name": "x", "mount": nested, "command": ["/no/such"]})[0] == 502
        for name in ("c1", shared["id"]):
            assert ask("DELETE", f"{base}/{name}")[0] == 200
        assert ask("GET", base)[1] == ask("GET", "/imageapi/v1/mount")[1] == {"objects": []}
        assert used_loops() == loops and list((run / "api/containers").iterdir()) == []

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_a_stalling_client_holds_nobody_up(tmp_path: Path) -> None:
    import socket

    def body(run: Path) -> None:
        served = Served(run, tmp_path / "pki")
        stalled = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(20)]
        started = time.monotonic()
        assert served.ask("GET", "/v1/status")[0] == 200
        assert time.monotonic() - started < PATIENCE, "the stalled ones are given up only then"
        for link in stalled:
            link.close()
        assert not alive(served.node.images.process_of("none"))

    run_as_agent(tmp_path / "run", body)
