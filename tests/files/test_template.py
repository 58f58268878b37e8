"""Templates of files: what they may, and what becomes of those that run away. In the process that
renders, too."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from layercake.features.files.rendering import renderer
from layercake.features.files.rendering.renderer import Renderer
from layercake.features.files.rendering.template import CLOSES, OPENS, NotRendered, Templates

NODE = {"name": "n1", "groups": ["a"]}


def render(text: str, seconds: float = 1.0) -> str:
    return Templates().render(text, text, {"node": NODE, "nodes": [NODE]}, seconds)


def test_a_template_knows_its_node_and_the_others() -> None:
    assert (
        render(
            "{% for n in nodes if 'a' in n.groups %}\n{{ n.name }} of {{ node.name }}\n{% endfor "
            "%}\n"
        )
        == "n1 of n1\n"
    )
    assert render("<b>{{ '<&>' }}</b>\n") == "<b><&></b>\n", "nothing is escaped: it is no page"


def test_a_secret_is_a_name_until_a_node_fetches_it() -> None:
    assert render("key={{ secret('munge.key') }}") == f"key={OPENS}munge.key{CLOSES}"
    for name in ("'../x'", "''", "1", "'a b'"):
        with pytest.raises(NotRendered, match="takes the name of a file"):
            render(f"{{{{ secret({name}) }}}}")
    with pytest.raises(NotRendered, match=r"U\+E000"):
        render(f"{OPENS}munge.key{CLOSES}")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a\nb\n{{ nope }}", 3, "'nope' is undefined"),
        ("a\n{{ node.nope }}", 2, "no attribute 'nope'"),
        ("a\n{% if %}", 2, "Expected an expression"),
        ("{{ ''.__class__ }}", 1, "unsafe"),
        ("{{ node.update({}) }}", 1, "unsafe"),
        ("{% include '/etc/shadow' %}", 1, "no loader"),
        ("{% import 'x' as y %}", 1, "no loader"),
        ("{{ cycler }}", 1, "undefined"),
        ("{{ range(10**7) | list }}", 1, "Range too big"),
        ("{{ 'a' * 10**9 }}", 1, "too long"),
        ("{{ 9 ** 9 ** 9 }}", 1, "small numbers"),
        (
            "{% set n = namespace(x=9) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% "
            "endfor %}",
            1,
            "small numbers",
        ),
        ("{{ '%9999d' % 1 }}", 1, "short formats"),
        ("{% for i in range(9999) %}{{ 'a' * 9999 }}{% endfor %}", 0, "makes more than"),
    ],
)
def test_what_it_may_not_is_told_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(NotRendered, match=said) as caught:
        render(text)
    assert caught.value.line == line


def test_one_that_loops_is_ended() -> None:
    loop = "a\n{% for i in range(99999) %}\n{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(NotRendered, match=r"takes longer than 0\.05 s") as caught:
        render(loop, 0.05)
    assert caught.value.line in (2, 3)


@pytest.fixture
async def process() -> AsyncIterator[Renderer]:
    found = Renderer()
    yield found
    await found.close()


async def test_one_that_fails_leaves_the_others_alone(process: Renderer) -> None:
    texts = ["one {{ node.name }}", "{{ nope }}", "two {{ nodes | length }}", "one {{ node.name }}"]
    site = {"nodes": [1, 2]}
    assert await process.render(texts, NODE, site, "m") == [
        ("one n1", ""),
        (None, "line 1: 'nope' is undefined"),
        ("two 2", ""),
        ("one n1", ""),
    ]
    assert await process.render(["{{ nodes | length }}"], NODE, {"nodes": []}, "other") == [
        ("0", "")
    ], "the site is another"


async def test_a_process_that_stands_still_is_ended_and_another_renders(
    process: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await process.render(["fine"], NODE, {}, "m") == [("fine", "")]
    first = process.pid
    monkeypatch.setattr(renderer, "GRACE_S", 0.2)
    os.kill(first, signal.SIGSTOP)

    ended = process.ended

    async def end() -> None:
        monkeypatch.setattr(renderer, "GRACE_S", 60.0)
        await ended()

    monkeypatch.setattr(process, "ended", end)
    assert await process.render(["fine {{ node.name }}", "{{ nope }}"], NODE, {}, "m") == [
        ("fine n1", ""),
        (None, "line 1: 'nope' is undefined"),
    ]
    assert process.pid not in (0, first)


async def test_one_that_hangs_is_found_out_and_left_out_from_then_on(
    process: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    ask = process.request

    async def hang(
        keys: Sequence[str], by_key: Mapping[str, str], *more: Any
    ) -> dict[str, tuple[str | None, str]]:
        asked.append([by_key[key] for key in keys])
        if any(by_key[key] == "stuck" for key in keys):
            raise TimeoutError
        return await ask(keys, by_key, *more)

    monkeypatch.setattr(process, "request", hang)
    for _ in range(2):
        found = await process.render(["fine", "stuck"], NODE, {}, "m")
        assert found[0] == ("fine", "") and found[1][0] is None and "hung" in found[1][1]
    assert asked == [["fine", "stuck"], ["fine"], ["stuck"], ["fine"]]


async def test_memory_is_bounded(process: Renderer) -> None:
    found = await process.render(["{{ 'a'.center(10 ** 10) }}", "fine"], NODE, {}, "m")
    assert found[0][0] is None and "memory" in found[0][1]
    assert found[1] == ("fine", "")
