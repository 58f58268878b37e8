"""`layercake serve`: runs the head until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from layercake.agents import pki
from layercake.agents.pki import Authority
from layercake.api.caller import printable
from layercake.base.lease import Lease
from layercake.base.logs import lines
from layercake.base.logs.journal import FIELDS
from layercake.base.process import leave_no_core
from layercake.base.secrets import without_secrets
from layercake.base.tcp_listener import raise_file_limit
from layercake.fleet import events
from layercake.fleet.store import Event
from layercake.head import lock, site_settings
from layercake.head import settings as head_settings
from layercake.head.head import Head
from layercake.head.loading import Preparation, own_head
from layercake.head.settings import Settings
from layercake.head.site_settings import SITE, SiteSettings
from layercake.head.standby import StandbyServer
from layercake.heads.copying import HeadLink
from layercake.heads.floating.keeper import take_away
from layercake.heads.site import SharedSite
from layercake.kraken.errors import InputError, LayercakeError
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


class _Stop:
    """Told once when the process shall end, or go on as another head of its site than it was."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.again = False
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.told.set)

    def begin_again(self) -> None:
        """This head leads no more: it follows, with nothing left of what it was."""
        self.again = not self.told.is_set()
        self.told.set()


async def _serve(
    data_dir: Path,
    secrets: Mapping[str, str],
    notifier: Notifier,
    inherited: Sequence[socket.socket],
) -> bool:
    """Serves until it is stopped; whether it is to begin again, as a head that follows."""
    settings = head_settings.load(data_dir)
    stop = _Stop()
    authority = Authority(data_dir / "pki", settings.certificates.days)
    site = _site(data_dir, settings, authority)
    life = asyncio.create_task(notifier.live())
    preparation = Preparation(data_dir, settings)
    try:
        if site is not None:
            site.is_ready = lambda: preparation.is_ready
            preparation.begin()
        if site is None or await _stand_by(data_dir, settings, site, authority, stop, notifier):
            settings = head_settings.load(data_dir)  # the leader may have changed them meanwhile
            ready = preparation.end(settings)
            head = Head(data_dir, settings, environ=secrets, site=site, ready=ready)
            await preparation.waiting.stop_starting()
            head.modules.services.adopt(preparation.waiting)
            await _lead(head, notifier, inherited, stop)
        return stop.again
    except OSError as error:
        raise InputError(
            f"cannot serve: {error}", hint=f"see {data_dir / head_settings.FILE_NAME}"
        ) from None
    finally:
        life.cancel()
        await preparation.stop()
        if site is not None:
            await site.close()


def _site(data_dir: Path, settings: Settings, authority: Authority) -> SharedSite | None:
    """This head among the others of its site; None for one that is alone. Raises InputError."""
    if not settings.heads.name:
        return None
    site = SharedSite(
        data_dir,
        settings.heads,
        settings.people_url,
        own_head(settings),
        data_dir / head_settings.DATABASE,
        Lease(data_dir, write=True),
        HeadLink(partial(pki.between_heads, authority)),
    )
    site.before_files = SiteSettings(data_dir).write
    return site


async def _stand_by(
    data_dir: Path,
    settings: Settings,
    site: SharedSite,
    authority: Authority,
    stop: _Stop,
    notifier: Notifier,
) -> bool:
    """Follows the head that leads. Whether this one leads now; False if it is to stop."""
    take_away(settings.floating_addresses)
    server = StandbyServer(settings, authority, site)
    await server.start()
    here = asyncio.get_running_loop()

    def take_over(paths: Sequence[str]) -> None:
        """The leader's authority and settings count here, too."""
        try:
            if any(path.startswith("pki/") for path in paths):
                authority.reread(*settings.certificate_names)
            if SITE in paths and site_settings.take_over(data_dir, settings):
                log.info("the site has other settings: this head starts again with them")
                stop.begin_again()
        except (LayercakeError, OSError) as error:
            log.error("cannot take over what the leader has: %s", error)

    def files_changed(paths: Sequence[str]) -> None:
        here.call_soon_threadsafe(take_over, paths)

    site.files_changed = files_changed
    site.begin()
    notifier.send("READY=1", "STATUS=follows the head that leads")
    log.info("%s follows", site.name)
    leads = asyncio.ensure_future(site.lead(stop.begin_again))
    stopped = asyncio.ensure_future(stop.told.wait())
    try:
        await asyncio.wait([leads, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not leads.done():
            return False
        leadership = leads.result()
        log.info("%s leads, in epoch %d", site.name, leadership.epoch)
        return True
    finally:
        leads.cancel()
        stopped.cancel()
        await server.stop()


async def _lead(
    head: Head, notifier: Notifier, inherited: Sequence[socket.socket], stop: _Stop
) -> None:
    """Serves the site until it is told to stop."""
    settings = head.settings
    api = head.api(*inherited)
    head.store.listen(events_to_log(settings.log_events))
    try:
        await head.start()
        await api.start()
        if head.site is not None and head.site.leadership is not None:
            epoch = head.site.leadership.epoch
            text = f"{head.site.name} leads, in epoch {epoch}"
            head.store.event(None, events.HEAD_LEADS, text, data={"epoch": epoch})
        said = f"nodes come to {settings.head_url}, people to {settings.socket}"
        log.info("serving %s: %s", head.data_dir, said)
        notifier.send("READY=1", f"STATUS={said}")
        await stop.told.wait()
    finally:
        notifier.send("STOPPING=1")
        if head.site is not None:
            head.site.stopping()
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
    held = lock.acquire(data_dir, "serve")
    secrets = dict(os.environ)
    kept = without_secrets(os.environ)
    notifier = Notifier.of(os.environ)
    os.environ.clear()  # whatever the head starts from here on has no secret in its environment
    os.environ.update(kept)
    try:
        again = asyncio.run(_serve(data_dir, secrets, notifier, listeners))
    finally:
        os.close(held)
    if again:
        for listener in listeners:
            listener.set_inheritable(True)
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], secrets)  # noqa: S606
    return 0
