"""What is answered about the head's certificates."""

from __future__ import annotations

import msgspec

from layercake.agents.pki import CertificateAge


class AuthorityShown(msgspec.Struct):
    """The head's certificates; while the authority is being replaced, the nodes and boot sets that
    do not know the next one."""

    certificates: list[CertificateAge]
    changing: bool
    nodes: list[str]
    boot_sets: list[str]
