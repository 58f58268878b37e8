"""The HTTP client that all Redfish drivers share."""

from __future__ import annotations

import errno
import functools
import ssl
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from layercake.base.text import parse_json
from layercake.kraken.errors import OperationFailed
from layercake.moduleapi.tls_client import OutgoingConnections

_BIGGEST = 4 << 20
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


@functools.cache
def tls_context(verify: bool | str) -> ssl.SSLContext:
    """The TLS context for all BMCs that are verified the same way: loading the CA bundle anew for
    each costs more than the request.

    `verify` is True (the system's CAs), the path of a CA file, or False. Raises OSError if the file
    cannot be used.
    """
    if (
        isinstance(verify, str) and not Path(verify).is_file()
    ):  # a FIFO would be waited for, and all BMCs with it
        raise OSError(errno.ENOENT, "it is no file", verify)
    if verify is not False:
        context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # Debian's default takes TLS 1.0 and then fails for its signatures, by an error without a reason
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class Web:
    """What Redfish drivers share: one HTTP client with kept-alive connections."""

    def __init__(self) -> None:
        self.connections = OutgoingConnections(limit=0, limit_per_host=2)
        self.session = self.connections.session(trust_env=False, auto_decompress=False)

    async def close(self) -> None:
        """Drops the connections."""
        await self.session.close()
        await self.connections.aclose()


async def read_json(response: aiohttp.ClientResponse, most: int = _BIGGEST) -> Mapping[str, Any]:
    """The body if it is a JSON object, else {}: errors come as HTML too, and their text is of no
    use. Raises OperationFailed for one that is larger than `most` bytes, unpacked: than any
    service's. Some pack it though nobody asked for that."""
    data = bytearray()
    async for piece in response.content.iter_any():
        data += piece
        if len(data) > most:
            break
    try:
        plain = _unpacked(bytes(data), response.headers.get("Content-Encoding", ""), most + 1)
        if max(len(data), len(plain)) > most:
            response.close()
            raise OperationFailed(
                f"cannot read what the BMC at {response.url.host} says: it has more than {most:,} "
                "bytes"
            )
        body = parse_json(plain)
    except (ValueError, zlib.error):
        return {}
    return body if isinstance(body, dict) else {}


def _unpacked(data: bytes, encoding: str, most: int) -> bytes:
    """At most so many bytes of what is packed by gzip or zlib (RFC 9110, section 8.4.1). Raises
    zlib.error."""
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        return data
    return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(data, most)
