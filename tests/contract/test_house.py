"""The house stays as it is: no circle among the children of a folder, and no figure gets worse."""

from __future__ import annotations

import ast
import gc
from pathlib import Path

import pytest

from tests.contract import house
from tests.contract.house import ROOT, Source, knots

AT_MOST = {
    "wide_lines": 0,
    "generic_names": 6,
    "golf": 0,
    "complex_functions": 0,
    "long_functions": 0,
    "most_methods": 32,
    "most_arguments": 11,
    "private_in_tests": 0,
    "head_attributes": 25,
    "head_imports": 34,
    "head_lambdas": 4,
    "assigned_late": 0,
    "answer_twins": 9,
}
"""What the product has yet of what it should not have. A change may lower them."""


@pytest.fixture(scope="module")
def files() -> list[Source]:
    found = house.sources()
    gc.freeze()  # they hold no circles; to look through them again and again takes long
    return found


def test_no_two_children_of_a_folder_import_each_other(files: list[Source]) -> None:
    assert knots(files) == {}


def test_no_figure_gets_worse(files: list[Source]) -> None:
    found = house.figures(files)
    assert len(house.folders(files)) > 50
    worse = {name: found[name] for name, most in AT_MOST.items() if int(str(found[name])) > most}
    assert not worse, f"at most {AT_MOST}"


def test_a_circle_is_found(tmp_path: Path) -> None:
    for name, text in {
        "a": "from layercake.part.b import x\n",
        "b": "import layercake.part.c.d\n",
        "c/d": "from layercake.part import a\n",
        "e": "from layercake.part import a\n\ndef late():\n    import layercake.part.f\n",
        "f": "from layercake.part import e\n",
    }.items():
        path = tmp_path / f"layercake/part/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert knots(house.sources(tmp_path)) == {"layercake.part": ["a", "b", "c"]}


def test_what_is_counted() -> None:
    source = ast.parse(
        '"""Doc."""\nimport os\n\ndef take(a):\n    """Doc."""\n    x, y = a, 1\n'
        "    if x and y or a:\n        return [i for i in a if i]\n"
    )
    function = next(n for n in ast.walk(source) if isinstance(n, house.Function))
    assert house.statements(ast.walk(source)) == 4 and house.complexity(function) == 5
    assert ROOT.joinpath("pyproject.toml").is_file()


def test_what_the_head_has_to_do_with_is_counted(tmp_path: Path) -> None:
    for name, text in {
        "layercake/head/head.py": "import pxe.service\nimport os\n\n\nclass Head:\n"
        "    def __init__(self, b):\n        self.a = lambda: 1\n        self.a = self.c\n",
        "layercake/head/late.py": "def late(head, part):\n    head.a.part = part\n",
        "layercake/features/racks/answers.py": "class Shown:\n    a: int\n    b: str\n\n\n"
        "class Other:\n    a: int\n    b: int\n",
        "pxe/records.py": "class Record:\n    b: str\n    a: int\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    files = house.sources(tmp_path)
    assert house.head_figures(files) == {
        "head_attributes": 1,
        "head_imports": 1,
        "head_lambdas": 1,
        "assigned_late": 1,
    }
    assert house.answer_twins(files) == ["layercake.features.racks.answers.Shown"]
