"""`layercake docs`: the documentation in a terminal, without a head."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from layercake import documentation
from layercake.cli.docs import find, followed
from layercake.cli.main import main
from layercake.kraken.errors import NotFound

ROOT = Path(__file__).resolve().parents[2]
TITLES = documentation.titles(ROOT / "docs")


def test_without_a_page_they_are_listed_by_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(TITLES) > 50
    assert any(
        line.split(maxsplit=1) == ["howto/consoles", TITLES["howto/consoles"]] for line in lines
    )


@pytest.mark.parametrize(
    "name", ["consoles", "howto/consoles", "docs/howto/consoles.md", "howto/consoles.html#read"]
)
def test_a_pipe_gets_the_page_as_it_was_written(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["docs", name]) == 0
    assert (
        capsys.readouterr().out == (ROOT / "docs/howto/consoles.md").read_text().rstrip("\n") + "\n"
    )


def test_a_machine_gets_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "security", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["page"] == "explanation/security"
        and found["title"] == "Security"
        and found["text"].startswith("# Security")
    )


def test_an_unknown_page_is_refused_with_the_nearest_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["docs", "consols"]) == 2
    assert (
        "cannot show consols: there is no such page\nhint: howto/consoles"
        in capsys.readouterr().err
    )
    assert main(["docs", "zzzz"]) == 2
    assert "`layercake docs` lists them" in capsys.readouterr().err


def test_a_name_of_several_pages_is_refused_with_all_of_them() -> None:
    titles = {"howto/disks": "Disks", "reference/disks": "Disks"}
    assert find("howto/disks", titles) == "howto/disks"
    with pytest.raises(NotFound, match="several have that name") as refused:
        find("disks", titles)
    assert "howto/disks, reference/disks" in refused.value.hint


def test_where_no_pages_are_it_says_who_has_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(documentation, "CLONE", tmp_path)
    monkeypatch.setattr(documentation, "INSTALLED", tmp_path)
    assert main(["--url", "https://head:8443", "docs", "consoles"]) == 1
    said = capsys.readouterr().err
    assert "cannot show the documentation" in said and "https://head:8443/docs/" in said


def test_on_an_installed_head_they_are_the_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(documentation, "CLONE", tmp_path / "lib")
    monkeypatch.setattr(documentation, "INSTALLED", tmp_path)
    assert documentation.pages_directory() is None and documentation.site_directory() is None
    for name in ("pages/index.md", "html/index.html"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("# Layercake\n")
    assert (
        documentation.pages_directory() == tmp_path / "pages"
        and documentation.site_directory() == tmp_path / "html"
    )


def test_links_become_what_one_types_and_what_is_typed_stays() -> None:
    text = (
        "# T\n\nSee [there](../explanation/security.md#tokens), [a host](https://example.org/), "
        "[here](#x) and "
        "![a rack](../pictures/rack.svg).\n\n```console\n# layercake [x](y.md)\n```\n\n"
        "```{toctree}\n:maxdepth: 1\n\nconsoles\n```\n"
    )
    shown = followed(text, "howto/index", {"howto/consoles": "Consoles"})
    assert (
        "there (`layercake docs explanation/security`), a host (https://example.org/), here and "
        "*Picture: a rack*." in shown
    )
    assert "# layercake [x](y.md)" in shown
    assert shown.endswith("- Consoles: `layercake docs howto/consoles`\n")


def on_terminal(page: str, pager: Path, script: str, **environment: str) -> str:
    """What a terminal of 80 columns shows of a page, where PAGER is a script."""
    pager.write_text(script)
    pager.chmod(0o755)
    ours, theirs = pty.openpty()
    given = {
        name: value for name, value in os.environ.items() if name not in ("LESS", "NO_COLOR")
    } | {"PAGER": str(pager), "COLUMNS": "80", "TERM": "xterm", **environment}
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        process = subprocess.Popen(
            [sys.executable, "-m", "layercake.cli.main", "docs", page],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=given,
            cwd=ROOT,
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = terminal.read(65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
        assert process.wait() == 0
    return shown.decode()


@pytest.mark.parametrize(("lines", "paged"), [(10, True), (4000, False)])
def test_a_terminal_shows_it_drawn_and_by_the_pager_where_it_is_long(
    lines: int, paged: bool, tmp_path: Path
) -> None:
    script = "#!/bin/sh\necho PAGED\ncat\n"
    text = on_terminal("consoles", tmp_path / "pager", script, LINES=str(lines), NO_COLOR="1")
    assert ("PAGED" in text) is paged
    assert TITLES["howto/consoles"] in text and "](" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize(
    ("environment", "options", "coloured"), [({}, "-R", True), ({"NO_COLOR": "1"}, "", False)]
)
def test_less_is_told_to_show_the_colours_that_it_gets(
    environment: dict[str, str], options: str, coloured: bool, tmp_path: Path
) -> None:
    script = '#!/bin/sh\necho "LESS=($LESS)"\ncat\n'
    text = on_terminal("consoles", tmp_path / "less", script, LINES="10", **environment)
    assert f"LESS=({options})" in text
    assert ("\x1b[" in text) is coloured


def test_the_terms_of_the_glossary_are_above_what_they_mean(tmp_path: Path) -> None:
    text = on_terminal("glossary", tmp_path / "pager", "", LINES="4000", NO_COLOR="1")
    lines = [line.strip(" •") for line in text.splitlines()]
    assert lines[lines.index("Agent") + 1].startswith("The program in minOS that joins the head")
    assert not [line for line in lines if line.startswith(": ") or " : " in line]
    written = "```yaml\nkey\n: value\n```\n"
    assert followed(written, "howto/index", {}) == written
