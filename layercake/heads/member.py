"""A member of etcd with our settings: as its command line, for systemd units, witnesses and tests.

Heartbeats of 100 ms and elections after 1 s are for members in one building; old revisions are
forgotten after five minutes, as each entry of the log is read once; the quota is well above what a
site of 100,000 nodes has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from layercake.kraken.errors import InputError

HEARTBEAT_MS = 100
ELECTION_MS = 1000
QUOTA_BYTES = 8 << 30
PROGRAM = "etcd"
REVOKED = "store-crl.pem"
"""The certificates that count no more; etcd reads it at each connection."""
FILE = "heads/member.json"
"""In a data directory: the member that this machine runs."""
STORE = "heads/store"
PORT = 2379


class MemberFile(msgspec.Struct, frozen=True):
    """What is kept of a machine's member: its name and URLs, the peer URLs of all members by name
    as it began, and whether there were some."""

    name: str
    client_url: str
    peer_url: str
    peers: dict[str, str]
    existing: bool


def read_command(data_dir: Path) -> list[str]:
    """The command that runs this machine's member. Raises InputError where there is none."""
    try:
        found = msgspec.json.decode((data_dir / FILE).read_bytes(), type=MemberFile)
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"cannot run a member of the heads' store: {data_dir / FILE}: {error}",
            hint="`layercake heads begin` makes the first member",
        ) from None
    certificates = data_dir / "heads"
    member = Member(found.name, data_dir / STORE, found.client_url, found.peer_url, certificates)
    return member.command(found.peers, existing=found.existing)


def own_url(data_dir: Path) -> str:
    """Where the member that this machine runs answers, "" if it runs none."""
    try:
        found = msgspec.json.decode((data_dir / FILE).read_bytes(), type=MemberFile)
    except (OSError, msgspec.MsgspecError):
        return ""
    return found.client_url


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its name, where its data are, where clients and the other members reach it, and
    with which certificates (`certificates` has store-ca.pem, store.pem and store.key; None: without
    TLS, on loopback). Its file may have `quota_bytes`."""

    name: str
    directory: Path
    client_url: str
    peer_url: str
    certificates: Path | None = None
    quota_bytes: int = QUOTA_BYTES

    def command(self, peers: Mapping[str, str], *, existing: bool) -> list[str]:
        """The command that runs it; `peers` are all members' names and peer URLs, `existing`
        whether it joins members that are there."""
        cluster = ",".join(f"{name}={url}" for name, url in sorted(peers.items()))
        command = {
            "name": self.name,
            "data-dir": str(self.directory),
            "listen-client-urls": self.client_url,
            "advertise-client-urls": self.client_url,
            "listen-peer-urls": self.peer_url,
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": cluster,
            "initial-cluster-state": "existing" if existing else "new",
            "heartbeat-interval": str(HEARTBEAT_MS),
            "election-timeout": str(ELECTION_MS),
            "quota-backend-bytes": str(self.quota_bytes),
            "auto-compaction-mode": "periodic",
            "auto-compaction-retention": "5m",
            "logger": "zap",
            "log-level": "warn",
        }
        if self.certificates is not None:
            ca = str(self.certificates / "store-ca.pem")
            cert = str(self.certificates / "store.pem")
            key = str(self.certificates / "store.key")
            # With an authority, clients must show a certificate; `client-cert-auth` would besides
            # have each request through the gateway logged.
            command |= {
                "trusted-ca-file": ca,
                "cert-file": cert,
                "key-file": key,
                "peer-client-cert-auth": "true",
                "peer-trusted-ca-file": ca,
                "peer-cert-file": cert,
                "peer-key-file": key,
            }
            revoked = self.certificates / REVOKED
            if revoked.exists():
                command |= {"client-crl-file": str(revoked), "peer-crl-file": str(revoked)}
        return [PROGRAM, *(f"--{name}={value}" for name, value in command.items())]
