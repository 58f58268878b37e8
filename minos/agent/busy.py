"""Whether work is going on here that must not be interrupted: `layercake-busy` on the node, or inside a container.

    RUN/busy        somebody on the node said so
    RUN/busy.d/WHO  so did WHO, from a container that has this directory mounted (imageapi/slurm/layercake-busy): RUN itself holds
                    the session's key, no container is to see it
"""

from __future__ import annotations

import os
from pathlib import Path

DIRECTORY = "busy.d"


def prepare(run: Path) -> None:
    """Makes the directory, so that it can be mounted into a container."""
    (run / DIRECTORY).mkdir(mode=0o755, parents=True, exist_ok=True)


def is_busy(run: Path) -> bool:
    """Whether anybody says so."""
    if (run / "busy").exists():
        return True
    try:
        with os.scandir(run / DIRECTORY) as entries:
            return next(entries, None) is not None
    except FileNotFoundError:
        return False
