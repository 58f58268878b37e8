"""Writes the reference pages from the code: `python -m docs.generate`. tests/docs fails when a page
is not what the code says.

What a thing means is taken from where it is declared: help texts, docstrings, descriptions of
fields.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from docs.generator.commands import checks_page, cli_page
from docs.generator.engine import events_page, graph_picture, variables_page
from docs.generator.files import config_page, container_page, inventory_page
from docs.generator.interfaces import module_api_page, modules_page, rest_page, rights_page

REFERENCE = Path(__file__).parent / "reference"

PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "checks.md": checks_page,
    "config.md": config_page,
    "inventory.md": inventory_page,
    "container.md": container_page,
    "rest.md": rest_page,
    "rights.md": rights_page,
    "modules.md": modules_page,
    "module-api.md": module_api_page,
    "events.md": events_page,
    "variables.md": variables_page,
    "graph.svg": graph_picture,
}


def main() -> int:
    """Writes all pages."""
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make())
    return 0


if __name__ == "__main__":
    sys.exit(main())
