"""How the head itself is: what `layercake status` shows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from layercake.head.head import Head
from layercake.head.state.store import Record
from layercake.head.views.nodes import Status, status_of


def head_status(head: Head, sees: Callable[[Record], bool] | None = None) -> dict[str, Any]:
    """The head's epoch and age, how many nodes are how, the database, and the services. With `sees`, of the nodes for which it
    holds, and without what services say, which may be about any node."""
    now = head.clock()
    counts = Counter(status_of(r, now, head.guard.why(r))[0] for r in head.store if sees is None or sees(r))
    total = counts.total()
    services = [
        {
            "name": s.name, "state": s.state.value, "pid": s.pid, "restarts": s.restarts,
            "health": s.health if sees is None else None,
            "since_s": round(time.monotonic() - s.since, 1) if s.since else None,
        }
        for s in head.services.status.values()
    ]
    working = counts[Status.WORKING] + counts[Status.WAITING] + counts[Status.HELD]
    return {
        "epoch": head.store.epoch, "uptime_s": round(time.monotonic() - head.started, 1), "revision": head.store.revision,
        "nodes": {
            "total": total, "converged": counts[Status.CONVERGED], "working": working,
            "quarantined": counts[Status.QUARANTINED], "blocked": counts[Status.BLOCKED], "asking": counts[Status.ASKING],
        },
        "database": head.database.health.view(head.store), "services": services, "sync": dict(head.sync.counters),
        "guard": head.guard.view(sees), "certificates": [age._asdict() for age in head.authority.ages()],
    }
