"""A server of SNTP (RFC 4330) for the nodes: it says this machine's time, and how good that is.

Who keeps this machine's clock is another's business (chrony, systemd-timesyncd); the kernel knows
whether somebody does.
"""

from __future__ import annotations

import ctypes
import ipaddress
import time
from collections.abc import Callable

from layercake.base.datagrams import DatagramServer
from layercake.base.packets import ntp
from layercake.kraken.errors import OperationFailed
from pxe.notes import Recorder
from pxe.settings import Settings

KEPT = 3
ALONE = 10
"""The stratum of a head whose clock is kept by another, and of one that nobody keeps: any other
server goes before that."""

_SIZE = 512
_TIME_ERROR = 5
_TIMEX_BYTES = 208
_libc = ctypes.CDLL(None)  # once: each question asks it


def clock_is_synchronized() -> bool:
    """Whether somebody keeps this machine's clock: the kernel says so (adjtimex(2)), to whomever
    asks and changes nothing."""
    return _libc.adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)) not in (_TIME_ERROR, -1)


class NtpServer:
    """Answers hosts that are `ours`, by their address; others get nothing. `wall` is the time of
    day in seconds."""

    def __init__(
        self,
        settings: Settings,
        ours: Callable[[ipaddress.IPv4Address | ipaddress.IPv6Address], bool],
        recorder: Recorder,
        *,
        wall: Callable[[], float] = time.time,
        synchronized: Callable[[], bool] = clock_is_synchronized,
    ) -> None:
        self._settings = settings
        self._ours = ours
        self._counters = recorder.counters
        self._wall = wall
        self._synchronized = synchronized
        self._server = DatagramServer(
            self._answer,
            size=_SIZE,
            failed=lambda error: recorder.failed("receive", "SNTP", settings.interface, error),
        )

    def open(self) -> None:
        """Starts to answer. Raises OperationFailed."""
        where = (self._settings.address, self._settings.ntp_port)
        try:
            self._server.open(where, *self._settings.bind_options)
        except OSError as error:
            raise OperationFailed(
                f"cannot answer SNTP at {where[0]}:{where[1]}: {error.strerror}",
                hint="another time server runs here: let it serve the nodes, or name others under "
                "`ntp` of their networks, and set "
                "boot.ntp_port to 0",
            ) from error

    def close(self) -> None:
        """Stops."""
        self._server.close()

    def _answer(self, data: bytes, source: tuple[str, ...]) -> None:
        received = self._wall()
        question = ntp.asked(data)
        sock = self._server.socket
        if question is None or sock is None or not self._ours(ipaddress.ip_address(source[0])):
            self._counters["ntp.refused"] += 1
            return
        try:
            sock.sendto(
                ntp.answer(
                    question, received, self._wall(), KEPT if self._synchronized() else ALONE
                ),
                source,
            )
            self._counters["ntp.answered"] += 1
        except OSError:  # a full buffer, or no way back: it asks again
            self._counters["ntp.send-failed"] += 1
