"""The mutation run itself: what a mutant is, who kills it, and that a run goes on where another
ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutate.measure import Sample
from tests.mutate.mutants import mutants, read
from tests.mutate.parts import PARTS
from tests.mutate.record import equivalents

ROOT = Path(__file__).resolve().parents[2]
PRICES = '''"""Prices."""
LIMIT = 10


def price(count: int, each: int) -> int:
    """What so many cost."""
    total = count * each
    while count > LIMIT:
        count -= LIMIT
        total -= 1
    return total


def is_dear(total: int) -> bool:
    return total > 100
'''
TESTS = """
from shop.prices import is_dear, price


def test_a_price():
    assert price(2, 3) == 6
    assert price(11, 1) == 10
    assert price(10, 1) == 10


def test_dear():
    assert is_dear(500)
"""
RUN = """
import sys
from pathlib import Path
from tests.mutate.measure import Measurement, Sample
from tests.mutate.parts import Part
from tests.mutate.record import Equivalent
part = Part(("shop",), ("checks",), 90)
known = [Equivalent("shop/prices.py", "is_dear", "100 -> 101", "nobody asks at the border")]
known = known if sys.argv[2:] else []
sys.exit(Measurement(Path(sys.argv[1]), "shop", part, Sample(100), known).run())
"""


def changes(text: str) -> list[str]:
    """What may become of a file."""
    return [mutant.change for mutant in mutants("a.py", text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a < b", ["a < b -> a <= b"]),
        ("x = a is None or b", ["a is None or b -> a is None and b", "a is None -> a is not None"]),
        ("x = not a", ["not a -> a"]),
        ("x = a + 2", ["a + 2 -> a - 2", "2 -> 3"]),
        ("x = 'a', b'a', True", ["'a' -> 'XXa'", "b'a' -> b'XXa'", "True -> False"]),
        ("x = f'a{b}c'", ["f'a{b}c' -> f'XXa{b}c'"]),
        ("a(b)", ["a(b) -> pass"]),
        ("a.b = c", ["a.b = c -> pass"]),
        ("if a: b = c", ["if a -> if not a"]),
        ("for a in b: break", ["break -> continue"]),
        ("def f() -> 'int': return g()", ["return g() -> return None"]),
        ('"""Doc."""\nassert a == 1\n__all__ = ["a"]\nx: "int" = y(doc="a")', []),
        ("if TYPE_CHECKING:\n    a(b)\nX = Literal['a']", []),
    ],
)
def test_what_the_mutants_are(text: str, found: list[str]) -> None:
    assert changes(text) == found


def test_a_mutant_is_the_file_with_one_fault() -> None:
    found = mutants("shop/prices.py", PRICES)
    assert {mutant.scope for mutant in found} == {"", "price", "is_dear"}
    border = next(mutant for mutant in found if mutant.change.startswith("total > 100"))
    assert border.diff(PRICES).splitlines() == [
        "shop/prices.py:15 in is_dear",
        "- return total > 100",
        "+ return total >= 100",
        "  (total > 100 -> total >= 100)",
    ]
    assert len({mutant.key for mutant in found}) == len(found)


def test_a_larger_sample_has_all_of_a_smaller_one() -> None:
    found = mutants("shop/prices.py", PRICES)
    small, large = Sample(3).of(found), Sample(8).of(found)
    assert len(small) == 3 and large[:3] == small
    assert Sample(3, seed=2).of(found) != small
    assert Sample(only="other").of(found) == []


def measured(root: Path, *known: str) -> subprocess.CompletedProcess[str]:
    """A measurement of the shop in a process of its own."""
    command = [sys.executable, "-c", RUN, str(root), *known]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_who_is_killed_who_lives_and_how_it_goes_on(tmp_path: Path) -> None:
    """Also one that never ends, and one of what runs at the import."""
    for name, text in {
        "shop/prices.py": PRICES,
        "checks/test_prices.py": TESTS,
        "pytest.ini": "[pytest]\npythonpath = .\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    count = len(mutants("shop/prices.py", PRICES))
    first = measured(tmp_path)
    assert first.returncode == 1, first.stdout + first.stderr
    table = first.stdout[first.stdout.index("\nshop/prices.py:") :]
    assert "+ return total >= 100" in table and "+ return total > 101" in table
    assert table.count("in is_dear") == 2 and "in price" not in table and "the module" not in table
    assert f"of {count} mutants (of {count}) {count - 2} are killed" in table
    record = tmp_path / "build/mutate/shop.jsonl"
    lines = record.read_text().splitlines()
    assert len(lines) == count
    assert any("checks/test_prices.py::test_a_price" in line for line in lines)

    record.write_text("\n".join(lines[:-3]) + "\n")
    again = measured(tmp_path)
    assert "3/3" in again.stdout and "4/4" not in again.stdout
    assert again.stdout.endswith(table[table.index("\nshop:") :])

    tests = tmp_path / "checks/test_prices.py"
    tests.write_text(TESTS + "    assert is_dear(101) and not is_dear(100)\n")
    better = measured(tmp_path)
    assert better.returncode == 0 and "2/2" in better.stdout and "LIVES" not in better.stdout
    assert f"of {count} mutants (of {count}) {count} are killed: 100.0 %" in better.stdout

    named = measured(tmp_path, "with an equivalent")
    assert f"of {count - 1} mutants (of {count}) {count - 1} are killed" in named.stdout
    assert "1 are equivalent and not counted" in named.stdout


def test_the_parts_are_there() -> None:
    assert len(PARTS) == 6
    for part in PARTS.values():
        assert read(ROOT, part.files)
        assert all((ROOT / test).exists() for test in part.tests)


def test_each_equivalent_is_a_mutant_and_has_its_reason() -> None:
    texts = {path: text for part in PARTS.values() for path, text in read(ROOT, part.files).items()}
    found = [mutant for path, text in texts.items() for mutant in mutants(path, text)]
    assert len(found) > 1000
    for entry in equivalents():
        assert any(entry.is_for(mutant) for mutant in found), entry
        assert len(entry.why) > 10, entry
