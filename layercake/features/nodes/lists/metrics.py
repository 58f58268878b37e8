"""Numbers for Prometheus: what is counted as it happens, and what is counted when somebody asks, in
its text format.

Source: Prometheus' "Exposition formats", text format 0.0.4. A library for it keeps a registry with
locks for the threads of a process; here is one loop, and the format is a page of code.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from layercake.base.histogram import Histogram
from layercake.base.text import of_proc
from layercake.fleet.events import MUTATION_DONE
from layercake.fleet.store import Event, Store
from layercake.kraken.events import MUTATION_FAILED

BUCKETS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Seconds: from a step that a module does at once to a boot of a large machine."""
KIND = "text/plain; version=0.0.4"

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


class Tally:
    """What is counted as it happens: events by kind, and of mutations how long they took and how
    often an attempt failed. Its labels are words of the head's own: what a node calls a mutation
    that there is not is "other". What there is of `mutations` and `kinds` of events is counted from
    0 on: of a series that begins at 1, nobody sees the first."""

    def __init__(self, store: Store, mutations: Sequence[str], kinds: Iterable[str] = ()) -> None:
        self._mutations = frozenset(mutations)
        self.events: Counter[str] = Counter(dict.fromkeys(kinds, 0))
        self.failed: Counter[str] = Counter(dict.fromkeys(mutations, 0))
        self.took: dict[str, Histogram] = {name: Histogram(BUCKETS) for name in mutations}
        self.converged = Histogram(BUCKETS)
        store.listen(self._count)

    def _count(self, event: Event) -> None:
        self.events[event.kind] += 1
        if event.kind == MUTATION_DONE.name:
            self.took.setdefault(self._of(event), Histogram(BUCKETS)).add(
                float(event.data.get("seconds") or 0.0)
            )
        elif event.kind == MUTATION_FAILED.name:
            self.failed[self._of(event)] += 1

    def _of(self, event: Event) -> str:
        mutation = event.data.get("mutation")
        return mutation if isinstance(mutation, str) and mutation in self._mutations else "other"


class Page:
    """A page of metrics in the text format."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, kind: str, help_: str, samples: Sequence[Sample]) -> None:
        """A metric, `kind` gauge or counter, with its samples."""
        self._head(name, kind, help_)
        self._lines += [
            f"layercake_{name}{_labels(labels)} {_number(value)}" for labels, value in samples
        ]

    def histograms(self, name: str, help_: str, found: Iterable[tuple[Labels, Histogram]]) -> None:
        """A histogram, one for each set of labels."""
        self._head(name, "histogram", help_)
        for labels, histogram in found:
            sofar = 0
            for count, bound in zip(
                histogram.counts, (*map(_number, histogram.bounds), "+Inf"), strict=True
            ):
                sofar += count
                self._lines.append(
                    f"layercake_{name}_bucket{_labels({**labels, 'le': bound})} {sofar}"
                )
            self._lines.append(f"layercake_{name}_sum{_labels(labels)} {_number(histogram.sum)}")
            self._lines.append(f"layercake_{name}_count{_labels(labels)} {sofar}")

    def text(self) -> str:
        """The page."""
        return "\n".join(self._lines) + "\n"

    def _head(self, name: str, kind: str, help_: str) -> None:
        self._lines += [f"# HELP layercake_{name} {help_}", f"# TYPE layercake_{name} {kind}"]


def states(store: Store) -> Counter[tuple[str, str]]:
    """How many nodes have a value of a variable. Nodes of one layout and state are counted
    together: 10,000 take 3 ms."""
    packed = Counter((record.planner.layout, record.machine.state) for record in store)
    found: Counter[tuple[str, str]] = Counter()
    for (layout, state), count in packed.items():
        for pair in layout.unpack(state).items():
            found[pair] += count
    return found


def process() -> Iterator[tuple[str, str, str, float]]:
    """(name, kind, help, value) of what the head takes of its machine."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield (
        "process_cpu_seconds_total",
        "counter",
        "Processor time of the head.",
        used.ru_utime + used.ru_stime,
    )
    pages = int(of_proc("/proc/self/statm").split()[1])
    yield (
        "process_resident_memory_bytes",
        "gauge",
        "Memory of the head.",
        float(pages * os.sysconf("SC_PAGE_SIZE")),
    )
    yield (
        "process_open_fds",
        "gauge",
        "Open files of the head.",
        float(len(os.listdir("/proc/self/fd"))),  # noqa: PTH208 (names)
    )


def _labels(labels: Labels) -> str:
    return (
        "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"
        if labels
        else ""
    )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
