"""What is to be seen on a screen, measured: how high a page is, which sets of nodes it shows, what
of it is cut off, and what lies over something else."""

from __future__ import annotations

from playwright.async_api import Page

_HEIGHT = """
() => document.documentElement.scrollHeight
    + [...document.querySelectorAll("*")].reduce((sum, one) =>
        one === document.documentElement || one === document.body ? sum
        : sum + Math.max(0, getComputedStyle(one).overflowY === "visible" ? 0
            : one.scrollHeight - one.clientHeight), 0)
"""
_SETS = """
() => [...document.querySelectorAll(".cause, .stopped-too")].map(one => [
    (one.querySelector("h3") ?? one).textContent,
    one.querySelector(".range")?.textContent ?? ""])
"""
_PIECES = """
() => {
    const unseen = one => one.closest(".unseen, .skip") || !one.checkVisibility();
    const pieces = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const text = walk.currentNode, around = text.parentElement;
        if (!text.data.trim() || unseen(around)) continue;
        const range = document.createRange();
        range.selectNodeContents(text);
        for (const box of range.getClientRects()) {
            if (box.width) pieces.push([text.data.trim(), box.x, box.y, box.right, box.bottom]);
        }
    }
    return pieces;
}
"""
_CUT = """
() => [...document.querySelectorAll("body *")].filter(one =>
    one.checkVisibility() && !one.closest(".unseen, .skip, .grid, select, input")
    && getComputedStyle(one).overflowX !== "visible" && one.scrollWidth > one.clientWidth + 1
).map(one => one.textContent)
"""
_LINE_PX = 4.0
"""By how much the boxes of two lines of text may be into one another: the letters are not."""

Piece = tuple[str, float, float, float, float]


async def height(page: Page) -> float:
    """How high the page is, in pixels, with all areas in it that scroll."""
    return float(await page.evaluate(_HEIGHT))


async def sets(page: Page) -> list[tuple[str, str]]:
    """(what is wrong, nodes) of all that the first page shows."""
    return [(text, nodes) for text, nodes in await page.evaluate(_SETS)]


async def faults(page: Page) -> list[str]:
    """What cannot be read on a page: what is cut off, what is beside the window, and what lies over
    something else."""
    width = int(await page.evaluate("innerWidth"))
    wide = int(await page.evaluate("document.documentElement.scrollWidth"))
    pieces: list[Piece] = [tuple(one) for one in await page.evaluate(_PIECES)]
    return [
        *([f"is {wide} pixels wide in a window of {width}"] if wide > width else []),
        *(f"is cut off: {text}" for text in await page.evaluate(_CUT)),
        *(
            f"is beside the window: {text}"
            for text, x, _, right, _ in pieces
            if outside(x, right, width)
        ),
        *overlaps(pieces),
    ]


def outside(left: float, right: float, width: float) -> bool:
    """Whether something is not within a window of that width, to a pixel."""
    return left < -1 or right > width + 1


def overlaps(pieces: list[Piece]) -> list[str]:
    """Which texts lie over one another."""
    found = []
    for at, (text, left, top, right, bottom) in enumerate(pieces):
        for other, left_of, top_of, right_of, bottom_of in pieces[at + 1 :]:
            across = min(right, right_of) - max(left, left_of)
            down = min(bottom, bottom_of) - max(top, top_of)
            if across > 1 and down > _LINE_PX:
                found.append(f"lies over one another: {text} / {other}")
    return found
