"""Which heads and witnesses a site has, and the certificates that they have for the store: files
that all heads share. None of it where the site's own etcd is used."""

from __future__ import annotations

from pathlib import Path

import msgspec

from layercake.agents import pki
from layercake.agents.pki import Authority
from layercake.base.files import write_atomic
from layercake.heads.member import REVOKED
from layercake.kraken.errors import OperationFailed

FILE = "heads/members.json"
AUTHORITY = "heads/store-ca"
DAYS = 3650.0
"""How long a certificate for the store is good: a witness has nobody who would renew it."""
CA = "store-ca.pem"
CERTIFICATE = "store.pem"
KEY = "store.key"


class Entry(msgspec.Struct, frozen=True):
    """A head or a witness: where the other members of the store reach its own, and the serial
    number of its certificate."""

    peer_url: str = ""
    serial: str = ""
    witness: bool = False


class Members(msgspec.Struct, frozen=True):
    """The document: who there is, by name, and the serial numbers of revoked certificates."""

    members: dict[str, Entry] = {}
    revoked: list[str] = []


class Register:
    """The members as the files of a data directory have them."""

    def __init__(self, data_dir: Path) -> None:
        self._file = data_dir / FILE
        self._folder = data_dir / "heads"
        self._authority = Authority(data_dir / AUTHORITY, DAYS)

    @property
    def own_store(self) -> bool:
        """Whether the store is the heads' own, and not an etcd that the site has anyhow."""
        return self._authority.trusted.exists()

    def read(self) -> Members:
        """Who there is. Raises OperationFailed."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Members)
        except FileNotFoundError:
            return Members()
        except (OSError, msgspec.MsgspecError) as error:
            raise OperationFailed(f"cannot read {self._file}: {error}") from None

    def _write(self, members: Members) -> None:
        write_atomic(self._file, msgspec.json.encode(members), durable=True)

    def add(
        self, name: str, peer_url: str, addresses: list[str], *, witness: bool
    ) -> dict[str, str]:
        """Takes one in; the files, by name, that it asks the store with. Raises OperationFailed."""
        members = self.read()
        files = {}
        serial = ""
        if self.own_store:
            issued = self._authority.issue_head(*addresses)
            serial = str(pki.serial_of(issued["cert"]))
            files = {
                CA: self._authority.trusted.read_text(),
                CERTIFICATE: issued["cert"],
                KEY: issued["key"],
                REVOKED: self._revoke(members.revoked),
            }
        else:
            for file in (CA, CERTIFICATE, KEY):
                if (self._folder / file).exists():
                    files[file] = (self._folder / file).read_text()
        entry = Entry(peer_url, serial, witness)
        self._write(Members({**members.members, name: entry}, members.revoked))
        return files

    def remove(self, name: str) -> None:
        """Takes one out; its certificate counts no more. Raises OperationFailed."""
        members = self.read()
        gone = members.members[name].serial
        revoked = [*members.revoked, *([gone] if gone else [])]
        if self.own_store:
            self._revoke(revoked)
        left = {k: v for k, v in members.members.items() if k != name}
        self._write(Members(left, revoked))

    def _revoke(self, serials: list[str]) -> str:
        data = self._authority.revocations(map(int, serials))
        write_atomic(self._folder / REVOKED, data, mode=0o644, durable=True)
        return data.decode()
