"""`layercake serve`: runs the head until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from layercake.api.caller import printable
from layercake.base.logs import lines
from layercake.base.logs.journal import FIELDS
from layercake.base.process import leave_no_core
from layercake.base.secrets import without_secrets
from layercake.base.tcp_listener import raise_file_limit
from layercake.fleet.store import Event
from layercake.head import lock
from layercake.head import settings as head_settings
from layercake.head.head import Head
from layercake.kraken.errors import InputError
from layercake.notify import Notifier

log = logging.getLogger("layercake")


_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def events_to_log(least: str) -> Callable[[Event], None]:
    """A listener (Store.listen) that logs events which are at least so grave. Of each kind, the log
    has so many and counts the rest, as of a line of code."""
    log = logging.getLogger("layercake.events")
    from_level = _LEVELS.get(least, logging.CRITICAL)

    def log_event(event: Event) -> None:
        level = _LEVELS[event.severity]
        if level >= from_level:
            fields = {
                "LAYERCAKE_KIND": event.kind,
                "LAYERCAKE_EVENT": str(event.id),
                "LAYERCAKE_NODE": event.node,
            }
            text = f"{event.node or 'head'} {event.kind}: {printable(event.text, lines.LINE)}"
            log.handle(
                log.makeRecord(
                    log.name, level, event.kind, 0, text, (), None, extra={FIELDS: fields}
                )
            )

    return log_event


async def _serve(
    data_dir: Path,
    secrets: Mapping[str, str],
    notifier: Notifier,
    inherited: Sequence[socket.socket],
) -> None:
    settings = head_settings.load(data_dir)
    head = Head(data_dir, settings, environ=secrets)
    api = head.api(*inherited)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    head.store.listen(events_to_log(settings.log_events))
    try:
        await head.start()
        await api.start()
        log.info(
            "serving %s: nodes come to %s, people to %s",
            data_dir,
            settings.head_url,
            settings.socket,
        )
        notifier.send(
            "READY=1", f"STATUS=nodes come to {settings.head_url}, people to {settings.socket}"
        )
        life = asyncio.create_task(notifier.live())
        await stop.wait()
        life.cancel()
    except OSError as error:
        raise InputError(
            f"cannot serve: {error}", hint=f"see {data_dir / head_settings.FILE_NAME}"
        ) from None
    finally:
        notifier.send("STOPPING=1")
        await api.stop()
        await head.stop()


def _inherited(descriptor: int) -> socket.socket:
    """The listening socket that whoever started this process has left open. Raises InputError."""
    try:
        listener = socket.socket(fileno=descriptor)
        listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise InputError(
            f"cannot serve on file descriptor {descriptor}: {error.strerror}"
        ) from None
    if not listening:
        raise InputError(
            f"cannot serve on file descriptor {descriptor}: it is not a listening socket"
        )
    listener.set_inheritable(False)
    return listener


def serve(data_dir: Path, inherited: int | None = None) -> int:
    """Runs the head in the foreground; returns the exit status. `inherited` is the file descriptor
    of a listening socket on which the API is served, too. Raises InputError for what a person has
    to mend."""
    lines.start("%(asctime)s %(levelname)s %(name)s: %(message)s", "layercake")
    raise_file_limit()
    os.umask(0o077)
    leave_no_core()
    head_settings.load(data_dir)
    listeners = [] if inherited is None else [_inherited(inherited)]
    held = lock.take(data_dir, "serve")
    secrets = dict(os.environ)
    kept = without_secrets(os.environ)
    notifier = Notifier.of(os.environ)
    os.environ.clear()  # whatever the head starts from here on has no secret in its environment
    os.environ.update(kept)
    try:
        asyncio.run(_serve(data_dir, secrets, notifier, listeners))
    finally:
        os.close(held)
    return 0
