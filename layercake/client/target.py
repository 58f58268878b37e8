"""Where the head is, and what it takes to be heard there."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from layercake import __version__
from layercake.kraken.errors import InputError

if TYPE_CHECKING:
    from ssl import SSLContext

DEFAULT_SOCKET = "/run/layercake/api.sock"


@dataclass(frozen=True, slots=True)
class Target:
    """Where the head is: `socket`, or `url` (https; those of several heads with commas between
    them) with a token file, perhaps the head's CA, and a certificate to show."""

    socket: str = DEFAULT_SOCKET
    url: str = ""
    token_file: str = ""
    ca: str = ""
    cert: str = ""

    @property
    def where(self) -> str:
        """For messages."""
        return self.url or self.socket

    def each(self) -> list[Target]:
        """One for each head that may be asked."""
        return [replace(self, url=url.strip()) for url in self.url.split(",")]

    def moved(self, location: str) -> Target:
        """The head to which another one sends us. Raises InputError if that is none."""
        there = urlsplit(location)
        found = replace(self, url=f"{there.scheme}://{there.netloc}")
        found.parts()
        return found

    def parts(self) -> SplitResult:
        """The parts of `url`. Raises InputError unless it is https with a host."""
        with contextlib.suppress(ValueError):  # a port or an IPv6 address that is none
            url = urlsplit(self.url)
            if url.scheme == "https" and url.hostname and url.port != 0:
                return url
        raise InputError(
            f"cannot use --url {self.url}: it must be https://HOST:PORT",
            hint="a token is never sent in clear",
        )

    def headers(self) -> dict[str, str]:
        """What each request carries: what asks, and over the network the token. Raises InputError
        if it cannot be read."""
        program = {"User-Agent": f"layercake/{__version__}"}
        if not self.url:
            return program
        if not self.token_file:
            raise InputError(
                "cannot use --url: it needs --token-file", hint="or LAYERCAKE_TOKEN_FILE"
            )
        from layercake.base.secrets import SecretRef, resolve  # only for --url

        return {
            **program,
            "Authorization": f"Bearer {resolve(SecretRef(file=self.token_file)).reveal()}",
        }

    def tls(self) -> SSLContext:
        """The check of the head's certificate, and our own to show. Raises InputError for files
        that cannot be used."""
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except OSError as error:  # ssl.SSLError is one
            raise InputError(
                f"cannot use --ca {self.ca}: {error.strerror or 'not a PEM certificate'}"
            ) from error
        if self.cert:
            try:
                context.load_cert_chain(self.cert)
            except OSError as error:
                why = (
                    "not a PEM certificate with its key"
                    if isinstance(error, ssl.SSLError)
                    else error.strerror
                )
                raise InputError(f"cannot use --cert {self.cert}: {why}") from error
        return context
