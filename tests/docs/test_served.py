"""The head serves the documentation to everybody, and a browser shows it under a policy that lets
nothing else run."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import expect

from layercake import documentation
from layercake.dashboard.documentation import POLICY
from tests.support.dashboard import Site, chromium, inventory, looking, serving

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def head(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Site]:
    """A head that was installed, without its documentation; that is at
    `documentation.INSTALLED`."""
    monkeypatch.setattr(documentation, "CLONE", tmp_path / "lib")
    monkeypatch.setattr(documentation, "INSTALLED", tmp_path / "share")
    async with serving(inventory(2, racks=1)) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def stranger() -> AsyncIterator[aiohttp.ClientSession]:
    """Somebody without a token."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=False), auto_decompress=False
    ) as found:
        yield found


def base(head: Site) -> str:
    return f"https://127.0.0.1:{head.port}"


def write(text: str) -> Path:
    """Builds a small site; its directory."""
    place = documentation.INSTALLED / "html"
    (place / "howto").mkdir(parents=True, exist_ok=True)
    (place / "index.html").write_text(text)
    (place / "howto/index.html").write_text("how")
    (place / "picture.png").write_bytes(b"\x89PNG")
    (place / "picture.webp").write_bytes(b"RIFF\xff")
    (place / "left.map").write_text("{}")
    return place


async def test_without_pages_it_says_how_to_get_them(
    head: Site, stranger: aiohttp.ClientSession
) -> None:
    async with stranger.get(f"{base(head)}/docs/howto/consoles.html") as answer:
        assert answer.status == 503 and "`make docs`" in await answer.text()


async def test_in_a_clone_without_a_site_pages_are_their_markdown(
    head: Site, stranger: aiohttp.ClientSession
) -> None:
    docs = documentation.CLONE / "docs"
    (docs / "howto").mkdir(parents=True)
    (docs.parent / "README.md").write_text("not a page")
    (docs / "index.md").write_text("# Layercake\n")
    (docs / "conf.py").write_text("no page")
    (docs / "howto/index.md").write_text("# How to\n")
    (docs / "howto/consoles.md").write_text("# Konsolen für alle\n")
    for path, text in (
        ("", "# Layercake\n"),
        ("index.html", "# Layercake\n"),
        ("howto/", "# How to\n"),
        ("howto/consoles.html", "# Konsolen für alle\n"),
    ):
        async with stranger.get(
            f"{base(head)}/docs/{path}", headers={"Accept-Encoding": "identity"}
        ) as answer:
            assert answer.status == 200 and await answer.text() == text
            assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
            assert answer.headers["Content-Security-Policy"] == POLICY
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-cache" and answer.headers["ETag"]
    for path in ("conf.py", "..%2fREADME.html", "howto/nosuch.html", "howto/consoles", "%00"):
        async with stranger.get(f"{base(head)}/docs/{path}") as answer:
            assert answer.status == 404
    site = documentation.CLONE / "build/docs"
    site.mkdir(parents=True)
    (site / "index.html").write_text("<p>built")
    async with stranger.get(
        f"{base(head)}/docs/", headers={"Accept-Encoding": "identity"}
    ) as answer:
        assert await answer.text() == "<p>built"


async def test_strangers_get_pages_and_nothing_else(
    head: Site, stranger: aiohttp.ClientSession
) -> None:
    write("<p>all")
    (documentation.INSTALLED / "secret.html").write_text("secret")
    (documentation.INSTALLED / "html/etc").symlink_to("/etc")
    async with stranger.get(f"{base(head)}/docs") as answer:
        assert (
            str(answer.url).endswith("/docs/")
            and await answer.read() != b""
            and answer.status == 200
        )
    for path, kind in (
        ("", "text/html; charset=utf-8"),
        ("howto/", "text/html; charset=utf-8"),
        ("picture.png", "image/png"),
        ("picture.webp", "image/webp"),
    ):
        async with stranger.get(f"{base(head)}/docs/{path}") as answer:
            assert answer.status == 200 and answer.headers["Content-Type"] == kind
            assert (
                answer.headers["Content-Security-Policy"] == POLICY
                and answer.headers["Cache-Control"] == "no-cache"
            )
    for path in (
        "nothere.html",
        "left.map",
        "..%2fsecret.html",
        "../secret.html",
        "etc/passwd",
        "howto",
        "%00",
    ):
        async with stranger.get(f"{base(head)}/docs/{path}") as answer:
            assert answer.status == 404 and "root:" not in await answer.text()


async def test_a_browser_that_has_a_page_gets_it_again_only_after_a_new_build(
    head: Site, stranger: aiohttp.ClientSession
) -> None:
    place = write("<p>one")
    async with stranger.get(
        f"{base(head)}/docs/", headers={"Accept-Encoding": "identity"}
    ) as answer:
        mark = answer.headers["ETag"]
        assert await answer.text() == "<p>one"
    async with stranger.get(f"{base(head)}/docs/", headers={"If-None-Match": mark}) as answer:
        assert answer.status == 304
    (place / "index.html").write_text("<p>two")
    os.utime(place / "index.html", ns=(1, 1))
    async with stranger.get(
        f"{base(head)}/docs/", headers={"If-None-Match": mark, "Accept-Encoding": "identity"}
    ) as answer:
        assert await answer.text() == "<p>two"
    shutil.rmtree(place)
    async with stranger.get(f"{base(head)}/docs/") as answer:
        assert answer.status == 503


async def test_a_build_that_leaves_the_first_page_alone_is_seen(
    head: Site, stranger: aiohttp.ClientSession
) -> None:
    async def text(name: str) -> tuple[int, str]:
        async with stranger.get(
            f"{base(head)}/docs/{name}", headers={"Accept-Encoding": "identity"}
        ) as answer:
            return answer.status, await answer.text()

    place = write("<p>one")
    assert await text("howto/") == (200, "how")
    assert (await text("howto/new.html"))[0] == 404
    (place / "howto/index.html").write_text("how else")
    assert await text("howto/") == (200, "how else")
    (place / "howto/index.html").write_text("HOW ELSE")
    os.utime(place / "howto/index.html", ns=(1, 1))
    assert await text("howto/") == (200, "HOW ELSE")
    (place / "howto/new.html").write_text("new")
    os.utime(place / "howto", ns=(2, 2))  # a clock may be coarse
    assert await text("howto/new.html") == (200, "new")
    (place / "howto/new.html").unlink()
    os.utime(place / "howto", ns=(3, 3))
    assert (await text("howto/new.html"))[0] == 404


async def test_a_browser_shows_it_whole(head: Site, site: Path) -> None:
    """The theme changes, the search finds, and the policy of the page has nothing to complain
    of."""
    documentation.INSTALLED.mkdir()
    (documentation.INSTALLED / "html").symlink_to(site)
    async with chromium() as browser, looking(browser, head) as look:
        await look.page.goto(f"{base(head)}/docs/howto/consoles.html")
        await expect(look.page.locator("h1")).to_contain_text("onsole")
        await expect(look.page.locator("body")).to_have_attribute("data-theme", "auto")
        await look.page.locator(".theme-toggle:visible").first.click()
        await expect(look.page.locator("body")).not_to_have_attribute("data-theme", "auto")
        await expect(look.page.locator("svg").first).to_be_hidden()
        await look.page.locator("input[name=q]:visible").first.fill("quarantine")
        await look.page.keyboard.press("Enter")
        await expect(look.page.locator("#search-results li").first).to_be_visible()
        assert [text for text in look.complaints() if not text.startswith("log: Changed to ")] == []
