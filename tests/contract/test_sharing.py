"""Files of tests that are shared out to workers: each once, and one rack alone for as long as there
is something else to do."""

from __future__ import annotations

from pathlib import Path

from tests.support.sharing import LONG, MACHINES, OTHERS, RACK, WAITING, chosen, kind_of

ROOT = Path(__file__).resolve().parents[2]


def test_each_worker_takes_its_own_first() -> None:
    left = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    kinds = {file: kind_of(file, ROOT) for file in left}
    assert {file.split("/")[1] for file, kind in kinds.items() if kind == MACHINES} >= {
        "metal",
        "minos",
    }
    assert set(LONG) <= kinds.keys()
    assert chosen(left, 0, ROOT) == LONG[0] and kinds[chosen(left, 2, ROOT)] == WAITING
    others = [file for file in left if kinds[file] == OTHERS]
    assert chosen(others, 1, ROOT) == next(file for file in LONG if file in others)
    taken: dict[int, list[str]] = {0: [], 1: [], 2: [], 3: []}
    while left:
        for worker, files in taken.items():
            if left:
                files.append(chosen(left, worker, ROOT))
                left.remove(files[-1])
    assert sorted(file for files in taken.values() for file in files) == sorted(kinds)
    racks = [file for file, kind in kinds.items() if kind == RACK]
    assert taken[0][: len(racks)] == [LONG[0], *(file for file in racks if file != LONG[0])], (
        "nobody else has begun with the rack"
    )
