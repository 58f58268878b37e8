"""Whom an agent trusts, and who it is to the head: the authorities that it believes, and its own
certificate.

Both come with the join, and anew whenever the head says so in the desired state: {"trust":
{"authorities", "certificate"}}, the mark of the authorities that the head trusts and the number of
the certificate that the node shall have. No clock has a say in it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layercake.base.files import write_atomic
from layercake.kraken.errors import OperationFailed
from minos.agent.http.client import NO_CHECK_TIME, tls_context
from minos.agent.state import Config, Session

HEAD_NAME = "Layercake head"
"""The common name of the head's certificate: other nodes have certificates of the same
authority."""


def mark(authority: Path) -> str:
    """Tells one set of authorities from another."""
    return hashlib.sha256(authority.read_bytes()).hexdigest()[:16]


def present(context: ssl.SSLContext, tls: tuple[str, str]) -> ssl.SSLContext:
    """Has a context present a node's certificate. Raises OperationFailed.

    The ssl module reads certificate and key from a file only: it is one without a name, in memory.
    """
    file = os.memfd_create("tls")
    try:
        os.write(file, (tls[1] + tls[0]).encode())
        context.load_cert_chain(f"/proc/self/fd/{file}")
    except ssl.SSLError as error:
        raise OperationFailed(f"cannot use the node's certificate: {error.reason}") from None
    finally:
        os.close(file)
    return context


def to_head(config: Config, session: Session | None) -> ssl.SSLContext:
    """How the agent speaks with the head. Raises InputError and OperationFailed. A certificate of
    an older head is not for that."""
    context = tls_context(config.authority)
    return (
        present(context, session.tls)
        if session is not None and session.mutual and session.tls
        else context
    )


def for_head(config: Config, session: Session) -> ssl.SSLContext:
    """How the node's own API is served: to who has a certificate of the head's authority, if the
    head presents one. Raises OperationFailed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if session.mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= NO_CHECK_TIME
        context.load_verify_locations(cafile=str(config.authority))
    return present(context, session.tls or ("", ""))


def is_head(certificate: Mapping[str, Any] | None) -> bool:
    """Whether a certificate that was checked is the head's, not another node's."""
    subject = (certificate or {}).get("subject", ())
    return any(pair == ("commonName", HEAD_NAME) for part in subject for pair in part)


def outdated(config: Config, session: Session, document: Mapping[str, Any]) -> bool:
    """Whether the head says that there is something new."""
    wanted = document.get("trust")
    if not isinstance(wanted, Mapping):
        return False
    return wanted.get("certificate") != session.certificate or wanted.get("authorities") != mark(
        config.authority
    )


def taken(config: Config, session: Session, answer: Mapping[str, Any]) -> Session:
    """The session with what the head has sent. The authorities are kept, if they can be used.
    Raises OperationFailed."""
    try:
        authorities = str(answer["authorities"])
        number = int(answer["certificate"])
        tls = answer["tls"]
        new = dataclasses.replace(
            session, certificate=number, tls=(str(tls["cert"]), str(tls["key"]))
        )
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=authorities)
    except (KeyError, TypeError, ValueError, ssl.SSLError) as error:
        raise OperationFailed(f"cannot take the head's certificates: {error!r}") from None
    if config.authority.read_text() != authorities:
        write_atomic(config.authority, authorities, mode=0o644)
    return new
