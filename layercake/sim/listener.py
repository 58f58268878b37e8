"""Where a browser on this machine reaches a simulation: a socket that is opened in the machine's
own network namespace.

The simulation has a network namespace of its own, but a socket stays in the one that it was opened
in. The launcher opens it, and the simulated head inherits it."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket

from layercake.kraken.errors import InputError

EXAMPLE = "127.0.0.1:8443"
_BACKLOG = 128


def open_listener(text: str, *, remote: bool = False) -> socket.socket:
    """Listens on ADDRESS:PORT, on an address that is not loopback only if `remote`. Port 0 is any
    that is free. Raises InputError."""
    address, port = _parsed(text)
    if not address.is_loopback and not remote:
        raise InputError(
            f"cannot listen on {text}: other machines may reach that address",
            hint=f"use {EXAMPLE} and an SSH tunnel (ssh -L 8443:{EXAMPLE} HOST), or say "
            "--allow-remote",
        )
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise InputError(f"cannot listen on {text}: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(address), port))
        listener.listen(
            _BACKLOG
        )  # two sockets can be bound to one port, but only one of them can listen
    except OSError as error:
        listener.close()
        raise _refused(text, port, error) from None
    return listener


def _refused(text: str, port: int, error: OSError) -> InputError:
    if error.errno == errno.EADDRINUSE:
        return InputError(
            f"cannot listen on {text}: port in use",
            hint=f"name another port, such as {port + 1}; `ss -tlnp` says who has this one",
        )
    if error.errno == errno.EACCES:
        return InputError(
            f"cannot listen on {text}: {error.strerror}", hint="ports below 1024 need root"
        )
    return InputError(
        f"cannot listen on {text}: {error.strerror}",
        hint=f"name an address of this machine: {EXAMPLE}",
    )


def _parsed(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    match = re.fullmatch(r"(?:\[(?P<six>[^\]]+)\]|(?P<four>[^:]+)):(?P<port>[0-9]{1,5})", text)
    try:
        host = (match["six"] or match["four"]) if match else ""
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
        port = int(match["port"]) if match else -1
        if not 0 <= port <= 65535:
            raise ValueError(port)
    except ValueError:
        raise InputError(
            f"cannot listen on {text}: it is not ADDRESS:PORT",
            hint=f"such as {EXAMPLE} or [::1]:8443",
        ) from None
    return address, port


def url_of(listener: socket.socket) -> str:
    """The URL that a browser opens. Who listens on all addresses is reached by this machine's
    name."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = socket.gethostname()
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"
