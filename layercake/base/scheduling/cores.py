"""Lists of cores as the kernel writes them, "0-3,32" (cpuset(7))."""

from __future__ import annotations

import re
from collections.abc import Collection

MOST_CORES = 8192
"""CONFIG_NR_CPUS of Linux is at most that on x86-64."""
_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")


def parse_cores(text: str) -> frozenset[int]:
    """The cores of a list. Raises ValueError that says what is wrong."""
    cores: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{part.strip()[:20]!r} is neither a core nor a range of cores")
        first = int(match[1])
        last = int(match[2] or first)
        if not first <= last < MOST_CORES:
            raise ValueError(f"{part.strip()} is no range of cores from 0 to {MOST_CORES - 1}")
        cores.update(range(first, last + 1))
    return frozenset(cores)


def format_cores(cores: Collection[int]) -> str:
    """Cores as a list that `parse_cores` reads, the shortest one."""
    ranges: list[list[int]] = []
    for core in sorted(cores):
        if ranges and core == ranges[-1][-1] + 1:
            ranges[-1][1:] = [core]
        else:
            ranges.append([core])
    return ",".join("-".join(map(str, one)) for one in ranges)
