"""How Sphinx builds the documentation: `make docs`. Nothing in the output comes from another
host."""

from __future__ import annotations

import sys
from pathlib import Path

from layercake import __version__

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for docs.strict

project = "Layercake"
version = release = __version__
extensions = ["myst_parser", "docs.strict"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns: list[str] = []
nitpicky = True

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "Layercake"
html_static_path = ["_static"]
html_css_files = ["layercake.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
# A search shows titles alone: its scripts may fetch nothing from the head (docs/strict.py).
html_show_search_summary = False
templates_path = ["_templates"]
