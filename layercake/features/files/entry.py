"""A file as a node is told of it."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """One file. `error` says why there is none; then the node keeps the one that it has. `leave`:
    the image's own is left. `beside`: lines of a hosts file for names that the image's does not
    have. `within`: only where that directory is there. `directory` is the mode of directories that
    are made for it. `secret`: nobody is shown what is in it. `of_site`:
    it may tell of others than the node: who is bound to groups is not shown it. `names_secrets`: we
    have put marks into it that stand for secrets; the same characters in other files are theirs."""

    targets: tuple[str, ...]
    path: str
    data: bytes = b""
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"
    on_change: str = ""
    beside: bool = False
    within: str = ""
    directory: str = "0755"
    secret: bool = False
    of_site: bool = False
    names_secrets: bool = False
    leave: bool = False
    error: str = ""

    @property
    def digest(self) -> str:
        """Of all that makes it another file."""
        about = f"{self.mode}\0{self.owner}\0{self.group}\0{self.beside}\0{self.leave}\0".encode()
        return hashlib.blake2b(about + self.data, digest_size=16).hexdigest()

    def to_wire(self) -> dict[str, Any]:
        """What the node is told (minos.agent.files.manifest); what is as usual does not stand in
        it."""
        found: dict[str, Any] = {"to": list(self.targets), "path": self.path}
        if self.error or self.leave:
            return {**found, **({"error": self.error} if self.error else {"leave": True})}
        found |= {
            "data": base64.b64encode(self.data).decode(),
            "digest": self.digest,
            "mode": self.mode,
        }
        more = {
            "owner": self.owner,
            "group": self.group,
            "on_change": self.on_change,
            "beside": self.beside,
            "within": self.within,
            "directory": self.directory,
        }
        usual = {
            "owner": "root",
            "group": "root",
            "on_change": "",
            "beside": False,
            "within": "",
            "directory": "0755",
        }
        return found | {key: value for key, value in more.items() if value != usual[key]}
