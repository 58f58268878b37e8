"""Small JSON files that say what there is on a node, for an agent that starts again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from layercake.kraken.errors import LayercakeError


def write_json(path: Path, data: object) -> None:
    """Writes a small JSON file in one step."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(data))
    partial.replace(path)


def read_json(path: Path) -> Any:
    """A JSON file's content, None if there is none. Raises LayercakeError if it is damaged."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LayercakeError(f"cannot read {path}: {error}") from None
