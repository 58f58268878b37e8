"""Scripts and styles go out of a page into files beside it, and mean the same there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.strict import strict_page


def test_what_stands_in_a_page_becomes_files(tmp_path: Path) -> None:
    page = (
        "<html><head><style>b { top: 0 }</style></head><body><script>run()</script></body></html>"
    )
    shown = strict_page(page, tmp_path, "../")
    sheet = re.findall(r'<link rel="stylesheet" href="\.\./_static/(inline-\w+\.css)">', shown)
    script = re.findall(r'<script src="\.\./_static/(inline-\w+\.js)"></script>', shown)
    assert [(tmp_path / name).read_text() for name in (*sheet, *script)] == [
        "b { top: 0 }",
        "run()",
    ]
    assert "run()" not in shown and "<style" not in shown


def test_a_style_of_an_element_becomes_a_class_beside_those_that_it_has(tmp_path: Path) -> None:
    page = (
        '<head></head><svg style="display: none;"><i class="a" id="x" style="top: 0; left: '
        '1px"/></svg>'
    )
    shown = strict_page(page, tmp_path, "")
    first, second = re.findall(r"inline-\w+(?=\">|\" id)", shown.partition("</head>")[2])
    assert shown.endswith(f'<svg class="{first}"><i class="a {second}" id="x"/></svg>')
    [sheet] = tmp_path.glob("*.css")
    assert f".{first} {{ display: none !important }}\n" in sheet.read_text()
    assert f".{second} {{ top: 0 !important; left: 1px !important }}\n" in sheet.read_text()
    assert f'href="_static/{sheet.name}"' in shown


def test_the_same_twice_is_the_same_and_a_strict_page_stays(tmp_path: Path) -> None:
    page = '<head></head><p style="top: 0">x</p><script src="a.js"></script>'
    once = strict_page(page, tmp_path, "")
    assert strict_page(page, tmp_path, "") == once and strict_page(once, tmp_path, "") == once
    assert '<script src="a.js"></script>' in once


def test_an_event_handler_fails_the_build(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="event handler"):
        strict_page('<p class="a" onclick="run()">x</p>', tmp_path, "")
    assert strict_page("<p>turn it on=off</p>", tmp_path, "") == "<p>turn it on=off</p>"
