"""Asks a head to take this machine in. Its certificate is checked by the authorities whose digest
the token has: nobody in between learns the token, or what comes for it."""

from __future__ import annotations

import hashlib
import ssl
from http.client import HTTPException, HTTPSConnection
from urllib.parse import urlsplit

import msgspec

from layercake.base.text import parse_json
from layercake.features.heads.joining import AUTHORITY, JOIN, JoinAnswer, JoinRequest
from layercake.kraken.errors import InputError, OperationFailed, Refused, Unreachable
from minos.agent.http.client import NO_CHECK_TIME

TIMEOUT_S = 60.0
MOST_BYTES = 8 << 20
MOST_HEADS = 3
"""A head that follows names the one that leads; so often another is asked."""


def join(url: str, request: JoinRequest) -> JoinAnswer:
    """What a head says to a machine that wants to join. Raises InputError, Refused, Unreachable and
    OperationFailed."""
    digest = request.token.partition(".")[2]
    if len(digest) != 64:
        raise InputError(
            "cannot join: this is no token of an invitation",
            hint="`layercake heads invite NAME` on the head that leads makes one",
        )
    for _ in range(MOST_HEADS):
        found = _request_join(url, digest, request)
        if isinstance(found, JoinAnswer):
            return found
        url = found
    raise Unreachable("cannot join: no head leads now", hint="see `layercake heads`")


def _request_join(url: str, digest: str, request: JoinRequest) -> JoinAnswer | str:
    """The answer, or the URL of the head that leads."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    status, found, leader = _request(url, "GET", AUTHORITY, unchecked)
    if leader:
        return leader
    if status != 200 or hashlib.sha256(found).hexdigest() != digest:
        raise Refused(
            f"cannot join {url}: it is not the head that has invited this machine",
            hint="is the address right, and the token whole?",
        )
    tls = ssl.create_default_context(cadata=found.decode("ascii"))
    tls.verify_flags |= NO_CHECK_TIME
    status, found, leader = _request(url, "POST", JOIN, tls, msgspec.json.encode(request))
    if leader:
        return leader
    if status == 200:
        try:
            return msgspec.convert(parse_json(found), JoinAnswer)
        except (msgspec.MsgspecError, ValueError) as error:
            raise OperationFailed(f"cannot read what {url} answers: {error}") from None
    raise _failure(url, status, found)


def _request(
    url: str, method: str, path: str, tls: ssl.SSLContext, body: bytes = b""
) -> tuple[int, bytes, str]:
    """Status, content, and the URL of the head that leads if it is another."""
    try:
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise InputError(
                f"cannot join {url[:200]!r}: it is no URL of a head, https://HOST:8443"
            )
        link = HTTPSConnection(parts.hostname, parts.port or 443, timeout=TIMEOUT_S, context=tls)
        try:
            link.request(method, path, body or None, {"Content-Type": "application/json"})
            answer = link.getresponse()
            data = answer.read(MOST_BYTES + 1)
        finally:
            link.close()
    except (OSError, HTTPException, ValueError) as error:
        raise Unreachable(f"cannot reach {url}: {error or type(error).__name__}") from None
    if len(data) > MOST_BYTES:
        raise OperationFailed(f"cannot read what {url} answers: it is too long")
    if answer.status == 307:
        to = urlsplit(answer.getheader("Location", ""))
        return answer.status, data, f"https://{to.netloc}"
    return answer.status, data, ""


def _failure(url: str, status: int, data: bytes) -> Exception:
    try:
        document = parse_json(data)
        text = str(document["error"])[:500]
        hint = str(document.get("hint") or "")[:300]
    except (ValueError, KeyError, TypeError, AttributeError):
        text = f"cannot join {url}: it answers {status}"
        hint = ""
    kind = {403: Refused, 400: InputError}.get(status, OperationFailed)
    return kind(text, hint=hint)
