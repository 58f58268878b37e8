"""Which nodes' files a head looks at."""

from __future__ import annotations

import pytest

from layercake.features.files.node_files import NodeFiles
from layercake.fleet.store import Record


def note_marked(files: NodeFiles, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the nodes whose files are looked at from now on, one for each look."""
    marked: list[str] = []
    mark = files.mark

    def marking(record: Record) -> str:
        marked.append(record.name)
        return mark(record)

    monkeypatch.setattr(files, "mark", marking)
    return marked
