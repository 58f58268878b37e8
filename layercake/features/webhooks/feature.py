"""Events, told to others by HTTP and by mail."""

from __future__ import annotations

from layercake.features.webhooks.mail import Mail
from layercake.features.webhooks.post import Post
from layercake.features.webhooks.sender import Receiver, tell_all
from layercake.fleet.store import Record
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    store = kernel.store
    head = kernel.settings.addresses[0]

    def expected(record: Record) -> bool:
        gate = kernel.running.decisions.gate
        return record.care.maintenance is not None or (gate is not None and gate.spares(record))

    receivers = [
        Receiver(
            f"webhook {name}",
            f"webhooks/{name}",
            one,
            Post(one, kernel.vault, head, store.wall),
            store,
            expected,
        )
        for name, one in kernel.section("webhooks").items()
    ] + [
        Receiver(
            f"mail {name}",
            f"mail/{name}",
            one,
            Mail(one, kernel.vault, head, kernel.settings.people_url, store.wall),
            store,
            expected,
        )
        for name, one in kernel.section("mail").items()
    ]

    async def run() -> None:
        await tell_all(receivers, kernel.database)

    return Running(loops=(run,))


FEATURE = Feature("webhooks", _start)
