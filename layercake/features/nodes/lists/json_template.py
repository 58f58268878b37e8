"""What of a node's words goes with the time, as words that lack nothing but numbers: most nodes are
so for long."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from layercake.features.nodes.views import Status, moving_view
from layercake.fleet.store import Record
from layercake.modules.boot_timeouts import BootTimeouts

_PLAIN = b',"last_seen_s":%b,"since_s":%.1f}'


@dataclass(frozen=True, slots=True)
class JsonTemplate:
    """The words, with places for numbers: of an active node for how long it is by now (twice), how
    long its boot takes, and when it is to be done; of all when it was last heard, and for how long
    it is as it is. They are JSON that goes on behind a comma and ends the node. It stands until the
    node's records, or the boot, are others."""

    text: bytes
    active: tuple[float, float] | None
    boot: float | None

    def encode(self, record: Record, now: float) -> bytes:
        """The words at a time: what nodes.moving_view says."""
        seen = b"null" if record.last_seen is None else b"%.1f" % (now - record.last_seen)
        since = max(0.0, now - record.changed_at)
        if self.active is None:
            return self.text % (seen, since)
        started, deadline = self.active
        boot = b"null" if self.boot is None else b"%.1f" % (now - self.boot)
        return self.text % (
            max(0.0, now - started),
            boot,
            now - started,
            deadline - now,
            seen,
            since,
        )


def template_of(
    record: Record, status: tuple[Status, str], patience: BootTimeouts
) -> JsonTemplate | None:
    """The template of a node with this status; None for one of which more goes with the time."""
    active = record.machine.active
    boot = patience.since(record)
    view = moving_view(record, 0.0, status, patience)
    if active is None and boot is None:
        kept = {key: view[key] for key in ("status_text", "boot_time", "active")}
        return JsonTemplate(b"," + _safe(kept)[1:-1] + _PLAIN, None, None)
    if active is None or status[0] is not Status.WORKING:
        return None
    times = {key: value for key, value in view["boot_time"].items() if key != "now_s"}
    return JsonTemplate(
        b',"status_text":'
        + _safe(active.mutation)[:-1]
        + b', %.0f s","boot_time":'
        + _safe(times)[:-1]
        + b',"now_s":%b},"active":'
        + _safe({"mutation": active.mutation, "attempt": active.attempt})[:-1]
        + b',"seconds":%.1f,"deadline_s":%.1f}'
        + _PLAIN,
        (active.started, active.deadline),
        boot,
    )


def _safe(value: object) -> bytes:
    return msgspec.json.encode(value).replace(b"%", b"%%")
