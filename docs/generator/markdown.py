"""Text, code, tables and pages in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

NOTE = "<!-- Written by docs/generate.py from the code. Do not edit. -->\n"


def plain(text: object) -> str:
    """A text that Markdown shows as it is; what stands in backquotes stays so."""
    parts = re.split(r"(`[^`]*`)", " ".join(str(text).split()))
    for i in range(0, len(parts), 2):
        parts[i] = parts[i].replace("<", "&lt;").replace("*", r"\*").replace("_", r"\_")
    return "".join(parts)


def code(text: object) -> str:
    """A word of code."""
    return f"`{text}`" if str(text) else ""


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; an empty one is a dash."""
    lines = [
        "| " + " | ".join(str(cell).replace("|", r"\|") for cell in row) + " |" for row in rows
    ]
    return (
        "\n".join(["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings), *lines]) + "\n"
        if lines
        else "None.\n"
    )


def page(title: str, *parts: str) -> str:
    """A whole page."""
    return "\n".join([NOTE, f"# {title}\n", *parts])
