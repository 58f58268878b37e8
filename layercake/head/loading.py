"""The modules that the settings ask for, and how their processes are started."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layercake.fleet.persistence.read_ahead import ReadAhead
from layercake.fleet.site_heads import SiteHead
from layercake.fleet.table import Table
from layercake.head import modules
from layercake.head.settings import DATABASE, Settings
from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.module import Module
from layercake.modules import declared
from layercake.modules.manager import Launch, launch_of
from layercake.modules.side import waiting_processes

log = logging.getLogger("layercake.modules")


def load_modules(data_dir: Path, settings: Settings) -> tuple[Table, dict[str, Launch]]:
    """The modules that the settings ask for, and how their processes are started. Raises InputError
    and DeclarationError."""
    loaded = declared.load(settings.modules)
    own = [
        m
        for m in modules.built_in()
        if not (m.gives_way and _taken(m, [found.module for found in loaded.values()]))
    ]
    given = {m.name: settings.of(m) for m in own} | {
        name: found.settings for name, found in loaded.items()
    }
    places = modules.references() | {name: found.reference for name, found in loaded.items()}
    table = Table([*own, *(found.module for found in loaded.values())], given, places)
    site = settings.site(data_dir)
    return table, {
        m.name: launch_of(m, given[m.name], site, places[m.name]) for m in table.having_process()
    }


def _taken(own: Module, of_site: Iterable[Module]) -> bool:
    """Whether the site has modules of its own in the place of one that gives way."""
    variables = {v.name for v in own.variables}
    for other in of_site:
        if other.name == own.name or variables & {v.name for v in other.variables}:
            log.warning(
                "the site's module %s takes the place of Layercake's own %s (%s)",
                other.name,
                own.name,
                own.doc,
            )
            return True
    return False


def section_reader(settings: Settings) -> Callable[[str], Any]:
    """What gives the settings of a module of the appliance, or of a feature, by the section's
    name."""

    def section(name: str) -> Any:
        module = next((m for m in modules.built_in() if m.section == name), None)
        return getattr(settings, name) if module is None else settings.of(module)

    return section


def own_head(settings: Settings) -> SiteHead:
    """This head as nodes reach it."""
    return SiteHead(
        name=settings.heads.name or socket.gethostname() or "head",
        addresses=tuple(settings.own_networks),
        api_port=settings.api_port,
        sync_port=settings.sync.port,
    )


@dataclass(frozen=True, slots=True)
class Ready:
    """What a head that follows has ready: the modules by these settings (`load_modules`), and the
    records of the nodes."""

    settings: Settings
    modules: tuple[Table, dict[str, Launch]]
    records: ReadAhead


class Preparation:
    """Gets a head that follows ready to lead, by the settings that it has: the processes of its
    modules wait, and the records of its nodes are made."""

    def __init__(self, data_dir: Path, settings: Settings) -> None:
        self.waiting = waiting_processes(data_dir)
        self._data_dir = data_dir
        self._settings = settings
        self._ready: Ready | None = None
        self._reading: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begins soon: a head that has just handed over leaves the processors to the next one."""
        self.waiting.begin(self._load)

    def _load(self) -> Mapping[str, Launch]:
        """A head whose modules cannot be loaded follows all the same: the leader may have settings
        for it that mend that. It says so here, and again if it is to lead."""
        try:
            found = load_modules(self._data_dir, self._settings)
        except (LayercakeError, OSError) as error:
            log.error("this head follows, and could not lead: %s", error)
            return {}
        records = ReadAhead(self._data_dir / DATABASE, found[0])
        self._ready = Ready(self._settings, found, records)
        self._reading = asyncio.create_task(records.keep_reading())
        return found[1]

    @property
    def is_ready(self) -> bool:
        """Whether all is there that makes a head lead sooner."""
        return self._ready is not None and self._ready.records.was_read

    def end(self, settings: Settings) -> Ready | None:
        """No more is made ready: the head leads now. What it has for these settings, None if it has
        nothing for them; nor has it for modules of the site, which may be declared otherwise by
        now."""
        if self._reading is not None:
            self._reading.cancel()
        ready = self._ready
        self._ready = None
        same = ready is not None and ready.settings == settings and not settings.modules
        return ready if same else None

    async def stop(self) -> None:
        """Ends all that it has begun and nobody has taken over."""
        self.end(self._settings)
        await self.waiting.stop()
