"""The modules that the settings ask for, and how their processes are started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from layercake.head import modules
from layercake.head.hosting import declared
from layercake.head.hosting.manager import Launch, launch_of
from layercake.head.hosting.table import Table
from layercake.head.settings import Settings


def load_modules(data_dir: Path, settings: Settings) -> tuple[Table, dict[str, Launch]]:
    """The modules that the settings ask for, and how their processes are started. Raises InputError and DeclarationError."""
    own = modules.built_in()
    loaded = declared.load(settings.modules)
    given = {m.name: settings.of(m) for m in own} | {name: found.settings for name, found in loaded.items()}
    places = modules.references() | {name: found.reference for name, found in loaded.items()}
    table = Table([*own, *(found.module for found in loaded.values())], given, places)
    site = settings.site(data_dir)
    return table, {m.name: launch_of(m, given[m.name], site, places[m.name]) for m in table.having_process()}


def section(settings: Settings, name: str) -> Any:
    """The settings of a module of the appliance."""
    return settings.of(next(m for m in modules.built_in() if m.section == name))
