"""The modules that the settings ask for, and how their processes are started."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from layercake.fleet.site_heads import SiteHead
from layercake.fleet.table import Table
from layercake.head import modules
from layercake.head.settings import Settings
from layercake.moduleapi.module import Module
from layercake.modules import declared
from layercake.modules.manager import Launch, launch_of

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
