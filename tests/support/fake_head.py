"""A head for agents under test: joins over TLS, a desired state, events, answers, datagrams. It
decides nothing."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from patience import patience

from layercake.agents import pki
from layercake.agents.pki import Authority
from layercake.head.modules import standard
from layercake.kraken.errors import WireError
from layercake.kraken.mutation import Mutation
from layercake.kraken.variables import Layout
from layercake.kraken.wire import (
    EPOCH_HEADER,
    Datagram,
    Kind,
    check_bearer,
    datagram_epoch,
    decode,
    encode,
)
from minos.agent.swap import signed

UP = {"power": "ON", "run": "SYNC", "image": "ACTIVE"}


class FakeHead:
    """One head for one node. `public` is the address under which the node sees it (QEMU's user
    network: 10.0.2.2). `beside`: another head of the site, of which it has the authority."""

    def __init__(
        self,
        directory: Path,
        node: str,
        token: str = "good-token",
        hello_s: float = 0.5,
        public: str = "127.0.0.1",
        address: str = "127.0.0.1",
        beside: FakeHead | None = None,
    ) -> None:
        if beside is None:
            pki.create(directory, public)
        self.public = public
        self.authority = directory / "ca.pem"
        self.certificates = Authority(directory)
        self.node, self.token, self.hello_s = node, token, hello_s
        self.layout = Layout(standard().variables)
        self.mutations: Sequence[Mutation] = standard().mutations
        self.session, self.key, self.epoch = 0, b"", 1
        self.document: dict[str, Any] = {"revision": 1, "goal": {}, "images": [], "requests": []}
        self.joins: list[dict[str, Any]] = []
        self.epochs: list[str | None] = []
        """The epochs of the heads that came with joins and events."""
        self.hellos: list[Datagram] = []
        self.challenged: list[int] = []
        """The epochs of those that were of another one."""
        self.heard_at: list[float] = []
        """When each HELLO came, on the monotonic clock."""
        self.events: list[dict[str, Any]] = []
        self.answers: dict[int, dict[str, Any]] = {}
        self.secrets: dict[str, str] = {}
        self.agents: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}
        """What is handed out below /node/v1/: modules and firmware."""
        self.drivers: Callable[[dict[str, Any]], tuple[int, object]] | None = None
        """The answer to which drivers there are; None is an older head."""
        self.silent = self.probing = False
        self._numbers = itertools.count(1000)
        self._address: tuple[str, int] | None = None
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind((address, 0))
        self._server = ThreadingHTTPServer((address, 0), _handler(self))
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "server.pem", directory / "server.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._threads = [
            threading.Thread(target=target, daemon=True)
            for target in (self._listen, self._server.serve_forever)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def url(self) -> str:
        return f"https://{self.public}:{self._server.server_address[1]}"

    @property
    def sync(self) -> str:
        return f"{self.public}:{self._udp.getsockname()[1]}"

    def close(self) -> None:
        self._udp.sendto(b"", self._udp.getsockname())
        self._server.shutdown()
        for thread in self._threads:
            thread.join(5)
        self._server.server_close()
        self._udp.close()

    def take_over(self, other: FakeHead, epoch: int, *heads: FakeHead) -> None:
        """Acts in this epoch of these heads from now on, with the node's session."""
        self.session, self.key, self.token = other.session, other.key, other.token
        self.epoch = datagram_epoch(epoch, self.epoch)
        told = [{"name": h.sync, "url": h.url, "sync": h.sync} for h in (self, *heads)]
        self.document = {**other.document, "heads": told, "epoch": epoch}
        self.silent = False

    def want(
        self, images: list[dict[str, Any]], goal: dict[str, str] | None = None, **more: Any
    ) -> None:
        """Wants something, and says so at once."""
        goal = goal or (UP if images else {**UP, "image": "IDLE"})
        self.document = {
            "revision": self.document["revision"] + 1,
            "goal": goal,
            "images": images,
            "requests": [],
            **{key: self.document[key] for key in ("heads", "epoch") if key in self.document},
            **more,
        }
        self.push()

    def ask(self, number: int, **request: Any) -> None:
        """Puts a request to the node."""
        self.document = {
            **self.document,
            "revision": self.document["revision"] + 1,
            "requests": [{"id": number, **request}],
        }
        self.push()

    def hand_over(
        self,
        name: str,
        agent: bytes,
        ask: int,
        *,
        signature: bytes | None = None,
        sent: bytes | None = None,
    ) -> None:
        """Wants another agent on the node. Signed by the head's authority, unless there is another
        signature; what is `sent` may be another one than was signed."""
        digest = hashlib.blake2b(agent, digest_size=32).hexdigest()
        proof = signature or self.certificates.sign(signed(name, digest, len(agent))) or b""
        self.agents[name] = sent or agent
        order = {
            "set": name,
            "digest": digest,
            "size": len(agent),
            "signature": base64.b64encode(proof).decode(),
            "ask": ask,
        }
        self.document = {**self.document, "revision": self.document["revision"] + 1, "agent": order}
        self.push()

    def log(self, container: str, what: str, seconds: float = 120.0) -> str:
        """A container's output as soon as `what` is in it: a container that runs has not always
        written yet."""
        deadline = time.monotonic() + patience(seconds)
        while True:
            number = next(self._numbers)
            self.ask(number, kind="logs", container=container, lines=50)
            self.wait(lambda: number in self.answers, seconds)  # noqa: B023 (it is asked within this round)
            answer = self.answers[number]
            if answer["ok"] and what in answer["text"]:
                return str(answer["text"])
            assert time.monotonic() < deadline, f"{what!r} is not in {answer} after {seconds} s"
            time.sleep(0.1)

    def push(self) -> None:
        """Tells the node the newest revision, as the head does at every change."""
        if self._address and not self.silent:
            goal = self.layout.goal(self.document["goal"])
            self._udp.sendto(
                encode(
                    self.datagram(Kind.DESIRED, time.time_ns(), goal.mask, goal.value), self.key
                ),
                self._address,
            )

    def datagram(self, kind: Kind, sequence: int, mask: int = 0, state: int = 0) -> Datagram:
        node = bytes.fromhex(self.node.replace("-", ""))
        revision = self.document["revision"]
        return Datagram(
            kind,
            node,
            self.session,
            self.epoch,
            sequence,
            revision,
            0 if self.probing else 1,
            self.layout.digest,
            mask,
            state,
        )

    def state(self) -> dict[str, str]:
        """What the last HELLO said."""
        return self.layout.unpack(self.hellos[-1].state) if self.hellos else {}

    def wait(self, what: Callable[[], object], seconds: float = 120.0) -> None:
        deadline = time.monotonic() + patience(seconds)
        while not what():
            assert time.monotonic() < deadline, (
                f"not in {seconds} s; state {self.state()}, events {self.events[-6:]}"
            )
            time.sleep(0.01)

    def wait_for(self, **values: str) -> None:
        """Waits until a HELLO says these values about the newest revision."""
        self.wait(
            lambda: (
                self.hellos
                and self.hellos[-1].cfg_revision == self.document["revision"]
                and values.items() <= self.state().items()
            )
        )

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events]

    def _listen(self) -> None:
        while data := self._udp.recvfrom(2048):
            if not data[0]:
                return
            if self.silent or not self.key:
                continue
            self._address = data[1]
            try:
                hello = decode(data[0], self.key)
            except WireError:
                continue
            if hello.epoch != self.epoch:
                self.challenged.append(hello.epoch)
                self._udp.sendto(
                    encode(self.datagram(Kind.CHALLENGE, hello.sequence), self.key), data[1]
                )
                continue
            self.heard_at.append(time.monotonic())
            self.hellos.append(hello)
            self.push()

    def join(self, claim: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.joins.append(claim)
        if claim["token"] != self.token or claim["node"] != self.node:
            return 403, {"error": "the token is wrong", "hint": "boot the node again"}
        self.session, self.key, self.token = secrets.randbits(63), secrets.token_bytes(32), ""
        return 200, {
            "session": self.session,
            "key": base64.b64encode(self.key).decode(),
            "epoch": self.epoch,
            "layout": self.layout.to_wire(),
            "hello_s": self.hello_s,
            "dead_s": 10 * self.hello_s,
            "sync": self.sync,
            "mutations": [m.to_wire() for m in self.mutations],
            "traits": {},
            "desired": self.document,
            "tls": self.certificates.issue(self.node, self.session),
        }


def _handler(head: FakeHead) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            pass

        def _reply(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _send(self, data: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _known(self) -> bool:
            try:
                check_bearer(self.headers.get("Authorization", ""), head.key)
            except WireError:
                self._reply(401, {"error": "not a session"})
                return False
            return True

        def do_GET(self) -> None:
            if head.silent:
                self._reply(503, {})
                return
            if not self._known():
                return
            kind, _, name = self.path.removeprefix("/node/v1/").partition("/")
            if kind == "secrets":
                self._reply(
                    *(
                        (200, {"key": head.secrets[name]})
                        if name in head.secrets
                        else (403, {"error": "not yours"})
                    )
                )
            elif kind == "agent":
                self._send(head.agents[name])
            elif f"{kind}/{name}" in head.files:
                self._send(head.files[f"{kind}/{name}"])
            elif kind in ("modules", "firmware"):
                self._reply(400, {"error": "there is none"})
            else:
                self._reply(200, head.document)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if head.silent:
                self._reply(503, {})
                return
            head.epochs.append(self.headers.get(EPOCH_HEADER))
            if self.path == "/node/v1/join":
                self._reply(*head.join(body))
            elif self._known():
                if self.path == "/node/v1/drivers":
                    self._reply(*(head.drivers(body) if head.drivers is not None else (404, {})))
                    return
                if self.path == "/node/v1/events":
                    head.events.extend(body)
                else:
                    head.answers[int(self.path.rpartition("/")[2])] = body
                self._reply(200, {})

    return Handler
