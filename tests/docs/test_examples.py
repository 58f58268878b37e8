"""What the pages tell people to write is what the code reads."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from imageapi.spec.container import parse_container
from layercake.head import modules, settings
from layercake.head.hosting import declared
from layercake.head.hosting.table import Table
from layercake.inventory.load import load
from layercake.moduleapi.service import MutationRequest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str, language: str, beginning: str = "") -> list[str]:
    """The examples of a language on a page, those that begin so."""
    found = re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)
    return [text for text in found if text.startswith(beginning)]


def test_the_inventories_can_be_applied() -> None:
    readme = re.findall(r"^An inventory:\n\n((?:    .*\n)+)", (DOCS.parent / "README.md").read_text(), re.M)
    examples = [*blocks("howto/write-an-inventory.md", "yaml"), *map(textwrap.dedent, readme)]
    parts = modules.standard().parts
    assert [len(load(text, parts=parts).nodes) for text in examples] == [1, 4, 4]


@pytest.mark.parametrize("page", ["howto/build-an-image.md", "howto/slurm.md"])
def test_the_containers_can_be_run(page: str) -> None:
    examples = blocks(page, "yaml", "# container.yaml")
    assert examples
    for text in examples:
        parse_container(yaml.safe_load(text))


@pytest.mark.parametrize("page", ["howto/images-from-ceph.md", "howto/slurm.md", "howto/who-may-do-what.md"])
def test_the_settings_can_be_read(page: str, tmp_path: Path) -> None:
    for text in blocks(page, "yaml"):
        if not text.startswith("#"):
            (tmp_path / settings.FILE_NAME).write_text("interface: eth0\naddress: 10.1.0.1\n" + text)
            settings.load(tmp_path)


async def test_the_module_in_python_works() -> None:
    names: dict[str, Any] = {}
    exec(compile(blocks("howto/write-a-module.md", "python")[0], "cooling.py", "exec"), names)  # noqa: S102 (our own page)
    table = Table((*modules.built_in(), names["MODULE"]))
    assert table.owner["cooling-discover"] == "cooling"
    request = MutationRequest(1, "n0", "cooling-discover", 1, 5.0, {})
    assert await names["Cooling"]().mutate(request) == {"cooling": "OK"}


def test_the_module_of_a_program_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "module.yaml"
    path.write_text(blocks("howto/write-a-module.md", "yaml", "# /opt/thermal/module.yaml")[0])
    wanted = {"thermal": declared.SiteModule(command=["node", "main.js"], declares=str(path))}
    assert set(declared.load(wanted)) == {"thermal"}
