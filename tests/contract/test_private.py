"""Private parts stay private: `x._name` only where x is self or cls, and nothing imports a name
that begins with one underscore."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.contract.house import private_uses

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("layercake", "pxe", "powerman", "imageapi", "minos", "vm-testbed")

UNAVOIDABLE = {"external._code_to_hash_pyc": "importlib's, and the one writer of that format"}


def files() -> list[Path]:
    found = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return [path for path in found if not path.name.startswith("module_pb2")]


def test_nobody_uses_anothers_private_parts() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in files()
        for line, what in private_uses(ast.parse(path.read_text()))
        if what not in UNAVOIDABLE
    ]
    assert not found, "\n".join(["make it public, or give it to whoever needs it:", *found])


def test_the_check_sees_what_it_should() -> None:
    text = (
        "from a import _b\nx._y\nself._y\ncls._y\nt._replace()\nx.__dict__\nimport "
        "os\nos._exit(0)\nx.y._z\n"
    )
    found = list(private_uses(ast.parse(text)))
    assert found == [(1, "from a import _b"), (2, "x._y"), (9, "x.y._z")]
