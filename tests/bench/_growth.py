"""How figures grow with the number of nodes."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

_FIGURE = re.compile(r"n(\d+)_(\w+)")


def growth(found: Mapping[str, Any], *names: str) -> dict[str, list[float]]:
    """For figures such as `n1000_cpu_s` and `n10000_cpu_s`: `cpu_s_exponent`, the power of the
    number of nodes by which it grows from each size to the next: 1 grows as their number does, 0
    not at all. None where there is but one size."""
    told: dict[str, list[float]] = {}
    figures = [
        (match[2], int(match[1]), float(found[key]))
        for key in found
        if (match := _FIGURE.fullmatch(key))
    ]
    for wanted in names:
        sizes = sorted((nodes, value) for name, nodes, value in figures if name == wanted and value)
        steps = [
            round(math.log(after / before) / math.log(more / less), 2)
            for (less, before), (more, after) in itertools.pairwise(sizes)
        ]
        if steps:
            told[f"{wanted}_exponent"] = steps
    return told
