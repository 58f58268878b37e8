"""What an agent remembers of its session, so that one that was started again goes on without joining anew.

RUN/session.json holds the session key: mode 0600, and never printed. RUN/desired.json is the last desired state: with it
a node heals its images while the head is away.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layercake.kraken.errors import OperationFailed
from layercake.kraken.variables import Layout


@dataclass(frozen=True, slots=True)
class Config:
    """What an agent is started with. `token` is the one-use secret of this boot."""

    node: str
    name: str
    mac: str
    head: str
    sync: str
    token: str
    authority: Path
    run: Path
    boot_id: str
    version: str

    @property
    def node_bytes(self) -> bytes:
        """The node's id as it stands in datagrams."""
        return bytes.fromhex(self.node.replace("-", ""))


@dataclass(frozen=True, slots=True)
class Session:
    """What the head gave at the join. Times are in seconds; `key` is secret."""

    number: int
    key: bytes
    epoch: int
    layout: Layout
    hello_s: float
    dead_s: float
    sync: tuple[str, int]
    tls: tuple[str, str] | None = None
    """Certificate and key (PEM) for the node's own API; the key is secret."""

    def __repr__(self) -> str:
        return f"Session({self.number})"


def parse_endpoint(text: str) -> tuple[str, int]:
    """(host, port) of "host:port" or "[host]:port". Raises OperationFailed."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise OperationFailed(f"cannot use sync address {text[:80]!r}: expected HOST:PORT")
    return host.strip("[]"), int(port)


def parse_join(answer: Mapping[str, Any]) -> Session:
    """The session in a join's answer. Raises OperationFailed if the head's answer is not as agreed."""
    try:
        return Session(int(answer["session"]), base64.b64decode(answer["key"], validate=True), int(answer["epoch"]),
                       Layout.from_wire(answer["layout"]), float(answer["hello_s"]), float(answer["dead_s"]),
                       parse_endpoint(answer["sync"]), _tls(answer.get("tls")))
    except (KeyError, TypeError, ValueError) as error:
        raise OperationFailed(f"cannot join: the head's answer is not as agreed: {error!r}",
                              hint="are head and minOS of the same version?") from None


def _tls(data: Any) -> tuple[str, str] | None:
    return None if data is None else (str(data["cert"]), str(data["key"]))


def token_mark(token: str) -> str:
    """Tells whether a stored session was made with this token, without storing it."""
    return hashlib.blake2b(token.encode(), digest_size=16).hexdigest()


class SessionFile:
    """RUN/session.json and RUN/desired.json."""

    def __init__(self, run: Path) -> None:
        self._session = run / "session.json"
        self._desired = run / "desired.json"

    def save(self, config: Config, session: Session) -> None:
        """Writes the session down."""
        _write(self._session, {
            "node": config.node, "boot_id": config.boot_id, "token": token_mark(config.token), "session": session.number,
            "key": base64.b64encode(session.key).decode(), "epoch": session.epoch, "layout": session.layout.to_wire(),
            "hello_s": session.hello_s, "dead_s": session.dead_s, "sync": f"{session.sync[0]}:{session.sync[1]}",
            "tls": session.tls and {"cert": session.tls[0], "key": session.tls[1]}})

    def load(self, config: Config) -> Session | None:
        """The session of an earlier agent of this node, this boot and this token; None if there is none."""
        try:
            data = json.loads(self._session.read_text())
        except FileNotFoundError:
            return None
        except ValueError:
            return None  # a torn file is no session; joining tells the rest
        mine = (config.node, config.boot_id, token_mark(config.token))
        if (data.get("node"), data.get("boot_id"), data.get("token")) != mine:
            return None
        return parse_join(data)

    def save_desired(self, desired: Mapping[str, Any]) -> None:
        """Writes the desired state down."""
        _write(self._desired, {**desired, "requests": []})

    def load_desired(self) -> dict[str, Any] | None:
        """The desired state that an earlier agent held."""
        try:
            data = json.loads(self._desired.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return data if isinstance(data, dict) else None


def _write(path: Path, data: object) -> None:
    """Writes a file that only root reads, in one step."""
    partial = path.with_name(f".{path.name}.partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(data, file)
    partial.replace(path)
