"""What an agent remembers of its session, so that one that was started again goes on without
joining anew.

RUN/session.json holds the session key: mode 0600, and never printed. RUN/desired.json is the last
desired state: with it a node heals its images while the head is away.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layercake.base.files import read_json, write_json
from layercake.base.text import whole_number
from layercake.kraken.errors import OperationFailed
from layercake.kraken.variables import Layout

if TYPE_CHECKING:
    from layercake.kraken.mutation import Mutation


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
    boot: str = ""
    """The boot set that this machine runs, "" if it is not known."""
    agent: str = ""
    """The boot set that this agent is of; "" for one that cannot be replaced."""

    ntp: tuple[str, ...] = ()
    """Time servers; none for an agent that does not keep its machine's clock."""
    other_heads: tuple[tuple[str, str], ...] = ()
    """Where the site's other heads are reached, as `head` and `sync`."""

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
    mutations: tuple[Mutation, ...] = ()
    """The head's whole table: the node plans by it, and carries out what is the node's."""
    traits: Mapping[str, str] = field(default_factory=dict)
    """The fixed facts of this node that decide which mutations apply."""
    certificate: int = 1
    """The number of the node's certificate in this session."""
    mutual: bool = False
    """Whether head and node each show the other a certificate. An older head does not."""
    image_key: bytes = b""
    """The public key (Ed25519) by which images are signed, for the whole session; b"" from an older
    head."""
    head_ports: Mapping[str, Any] = field(default_factory=dict)
    """{"addresses", "ports"} of the head that containers may not speak to; empty from an older
    head."""

    def __repr__(self) -> str:
        return f"Session({self.number})"


def parse_endpoint(text: str) -> tuple[str, int]:
    """(host, port) of "host:port" or "[host]:port". Raises OperationFailed."""
    host, _, port = text.rpartition(":")
    if not host or not whole_number(port, 65535):
        raise OperationFailed(f"cannot use sync address {text[:80]!r}: expected HOST:PORT")
    return host.strip("[]"), int(port)


def parse_join(answer: Mapping[str, Any]) -> Session:
    """The session in a join's answer. Raises OperationFailed or DeclarationError if the head's
    answer is not as agreed."""
    from layercake.kraken.mutation import (
        Mutation,
    )  # here: joining comes first, and an emulated node feels every import

    if not isinstance(answer, Mapping) or "mutations" not in answer:
        raise OperationFailed(
            "cannot join: the head is older than this minOS, it sends no table of mutations",
            hint="upgrade the head, or boot the node with the minOS that belongs to the head",
        )
    try:
        return Session(
            _number(answer["session"]),
            base64.b64decode(answer["key"], validate=True),
            _number(answer["epoch"]),
            Layout.from_wire(answer["layout"]),
            _seconds(answer["hello_s"]),
            _seconds(answer["dead_s"]),
            parse_endpoint(answer["sync"]),
            _tls(answer.get("tls")),
            tuple(Mutation.from_wire(m) for m in answer["mutations"]),
            dict(answer["traits"]),
            _number(answer.get("certificate", 1)),
            answer.get("mutual") is True,
            base64.b64decode(answer.get("image_key", ""), validate=True),
            dict(answer.get("head_ports", {})),
        )
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise OperationFailed(
            f"cannot join: the head's answer is not as agreed: {error!r}",
            hint="are head and minOS of the same version?",
        ) from None


def _number(value: Any) -> int:
    """A number as it fits into a datagram. Raises ValueError."""
    number = int(value)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"{number} is no number of 64 bits")
    return number


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not 0 < seconds < 86400:
        raise ValueError(f"{seconds} is no time in seconds")
    return seconds


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
        write_json(
            self._session,
            {
                "node": config.node,
                "boot_id": config.boot_id,
                "token": token_mark(config.token),
                "session": session.number,
                "key": base64.b64encode(session.key).decode(),
                "epoch": session.epoch,
                "layout": session.layout.to_wire(),
                "hello_s": session.hello_s,
                "dead_s": session.dead_s,
                "sync": f"{session.sync[0]}:{session.sync[1]}",
                "tls": session.tls and {"cert": session.tls[0], "key": session.tls[1]},
                "mutations": [m.to_wire() for m in session.mutations],
                "traits": session.traits,
                "certificate": session.certificate,
                "mutual": session.mutual,
                "image_key": base64.b64encode(session.image_key).decode(),
                "head_ports": session.head_ports,
            },
        )

    def load(self, config: Config) -> Session | None:
        """The session of an earlier agent of this node, this boot and this token; None if there is
        none. Raises OperationFailed."""
        data = _read(self._session)
        mine = (config.node, config.boot_id, token_mark(config.token))
        if data is None or (data.get("node"), data.get("boot_id"), data.get("token")) != mine:
            return None
        return parse_join(data)

    def save_desired(self, desired: Mapping[str, Any]) -> None:
        """Writes the desired state down."""
        write_json(self._desired, {**desired, "requests": []})

    def load_desired(self) -> dict[str, Any] | None:
        """The desired state that an earlier agent held."""
        return _read(self._desired)


def _read(path: Path) -> dict[str, Any] | None:
    """A file's object; None if there is no file or it is damaged: the head knows all that stood
    there."""
    try:
        data = read_json(path)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None
