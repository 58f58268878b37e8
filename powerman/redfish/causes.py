"""Why a Redfish service cannot be used, by evidence, with a hint that leads to the cause.

A BMC that answers and is not understood has a cable; only silence is answered with "check its
cable". Each row of a table is a cause with what shows it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

import aiohttp

from layercake.kraken.errors import LayercakeError, OperationFailed
from powerman.driver import unreachable

_OLD_TLS = (
    "update the BMC's firmware, or set bmc.driver to ipmi; Layercake speaks TLS 1.2 and newer"
)
_WEAK_KEY = "give the BMC a new certificate or newer firmware, or set bmc.driver to ipmi"
_REASON = re.compile(r"\[SSL\]\s*([^(\[]{1,80})")
TLS_CAUSES: Mapping[str, tuple[str, str]] = {
    "UNSUPPORTED_PROTOCOL": ("it speaks TLS 1.0 or 1.1 only", _OLD_TLS),
    "TLSV1_ALERT_PROTOCOL_VERSION": ("it speaks TLS 1.0 or 1.1 only", _OLD_TLS),
    "LEGACY_SIGALG_DISALLOWED_OR_UNSUPPORTED": ("it speaks TLS 1.0 or 1.1 only", _OLD_TLS),
    "WRONG_SSL_VERSION": ("it speaks TLS 1.0 or 1.1 only", _OLD_TLS),
    "DH_KEY_TOO_SMALL": ("its Diffie-Hellman key is too small for TLS", _WEAK_KEY),
    "EE_KEY_TOO_SMALL": ("the key of its certificate is too small", _WEAK_KEY),
    "CA_KEY_TOO_SMALL": ("the key of its certificate's CA is too small", _WEAK_KEY),
    "CA_MD_TOO_WEAK": ("its certificate is signed by an algorithm that is broken", _WEAK_KEY),
    "BAD_ECPOINT": ("its TLS key exchange is not understood", _OLD_TLS),
    "SSLV3_ALERT_HANDSHAKE_FAILURE": ("it has no TLS cipher in common with us", _OLD_TLS),
    "NO_SHARED_CIPHER": ("it has no TLS cipher in common with us", _OLD_TLS),
    "UNSAFE_LEGACY_RENEGOTIATION_DISABLED": ("its TLS renegotiates in the old way", _OLD_TLS),
    "WRONG_VERSION_NUMBER": (
        "it does not speak TLS at this port",
        "bmc.address with http://, or another bmc.port: that of its HTTPS",
    ),
    "HTTP_REQUEST": (
        "it does not speak TLS at this port",
        "bmc.address with http://, or another bmc.port: that of its HTTPS",
    ),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": (
        "it wants a certificate of ours",
        "turn client certificates off in its settings",
    ),
}
"""By the reason that OpenSSL gives (`ssl.SSLError.reason`)."""


def cannot_connect(where: str, error: Exception) -> LayercakeError:
    """What a failed exchange means: Unreachable if nobody answered, OperationFailed if somebody
    did, and is not understood or trusted."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return OperationFailed(
            f"cannot trust the BMC at {where}: {error.certificate_error}",
            hint="set bmc.verify_tls to the path of the CA that signed its certificate",
        )
    if reason := tls_reason(error):
        why, hint = TLS_CAUSES.get(reason, (f"TLS fails: {reason}", _OLD_TLS))
        return OperationFailed(f"cannot talk to the BMC at {where}: {why}", hint=hint)
    if isinstance(error, aiohttp.ClientResponseError):
        return OperationFailed(
            f"cannot talk to the BMC at {where}: what it answers is not HTTP",
            hint="does bmc.port lead to its Redfish service?",
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        return unreachable(where, error.os_error.strerror or str(error.os_error))
    return unreachable(where, str(error) or type(error).__name__)


def tls_reason(error: BaseException) -> str:
    """OpenSSL's reason in an error, or in what caused it; "" if it is none of TLS."""
    seen: BaseException | None = error
    for _ in range(4):
        inner = getattr(seen, "os_error", None)
        for one in (inner, seen):
            if isinstance(one, ssl.SSLError):
                # Python's table of reasons has not all that OpenSSL 3 has: those come as text only
                named = _REASON.search(str(one))
                text = named[1].strip().upper().replace(" ", "_") if named else "UNKNOWN"
                return str(getattr(one, "reason", None) or text)
        seen = seen.__cause__ if seen is not None else None
    return ""


def http_cause(status: int, location: str, address: str) -> str:
    """A hint for an HTTP status that is not what was asked for, "" without one. `address` is the
    root of the service."""
    if not 300 <= status < 400:
        return ""
    here = urlsplit(address)
    there = _split(location)
    if there.hostname == here.hostname and there.scheme == "https" != here.scheme:
        return "it sends us to HTTPS: bmc.address with https://"
    if there.hostname == here.hostname and there.scheme == here.scheme:
        return f"it sends us to another port: bmc.address {there.scheme}://{there.netloc}"
    return "it sends us to another service: is bmc.address right?"


def _split(location: str) -> SplitResult:
    """A Location; one without sense has no host."""
    try:
        found = urlsplit(location)
        _ = found.port
    except ValueError:
        return urlsplit("")
    return found if "@" not in found.netloc and found.netloc.isprintable() else urlsplit("")
