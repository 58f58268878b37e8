"""What a simulation makes and removes of its own, where it may listen, and what it prints: without
a simulation."""

from __future__ import annotations

import io
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.generator.interfaces import routes as all_routes
from layercake.api.route import Reach
from layercake.api.simulated import CALLS, ROUTES
from layercake.head import modules
from layercake.kraken.errors import InputError
from layercake.sim import directory, launch, namespace
from layercake.sim.listener import open_listener, url_of
from layercake.sim.screen import Screen


class Terminal(io.StringIO):
    """A terminal of 80 columns."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory with a short name: a simulation's sockets are below it."""
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as name:
        yield Path(name)


def test_a_directory_is_locked_while_it_is_used_and_emptied_for_the_next(tmp_path: Path) -> None:
    place = tmp_path / "d"
    lock = directory.claim(place)
    with pytest.raises(InputError, match="another simulation runs there"):
        directory.claim(place)
    (place / "pki").mkdir()
    (place / "head.log").write_text("old")
    os.close(lock)
    lock = directory.claim(place)
    assert [path.name for path in place.iterdir()] == [directory.MARK]
    os.close(lock)


def test_what_a_killed_simulation_left_is_removed_by_the_next_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, runs = directory.temporary(), directory.temporary()
    os.close(directory.claim(left))
    (left / "files").mkdir()
    lock = directory.claim(runs)
    other = tmp_path / f"{directory.PREFIX}of-somebody"
    other.mkdir()
    (other / "thesis.tex").write_text("do not lose this")
    assert directory.sweep() == [left]
    assert sorted(tmp_path.iterdir()) == sorted([runs, other]) and (other / "thesis.tex").exists()
    os.close(lock)


def test_a_kept_directory_stays_for_the_next_run_and_can_be_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(child: object, words: list[str], descriptors: list[int]) -> int:
        for lock in descriptors:
            assert json.loads(words[-1])["lock"] == lock
            log = Path(json.loads(words[-1])["directory"]) / "head.log"
            log.write_text("why it failed")
            os.close(lock)
        return 0

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(namespace, "refused", lambda: "")
    monkeypatch.setattr(launch.Child, "run", play)
    assert launch.launch({"keep": True}) == 0
    (kept,) = tmp_path.iterdir()
    assert launch.launch({"keep": False}) == 0
    assert list(tmp_path.iterdir()) == [kept]
    assert (kept / "head.log").read_text() == "why it failed"

    os.close(directory.claim(kept))  # used again, by --dir, and killed
    assert directory.sweep() == [kept] and list(tmp_path.iterdir()) == []


def test_nothing_but_a_simulations_directory_is_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not lose this")
    directory.remove(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("8443", "it is not ADDRESS:PORT"),
        ("127.0.0.1", "it is not ADDRESS:PORT"),
        ("127.0.0.1:99999", "it is not ADDRESS:PORT"),
        ("head.example.org:8443", "it is not ADDRESS:PORT"),
        ("::1:8443", "it is not ADDRESS:PORT"),
        ("", "it is not ADDRESS:PORT"),
        ("0.0.0.0:0", "other machines may reach that address"),
        ("[::]:0", "other machines may reach that address"),
        ("192.0.2.7:0", "other machines may reach that address"),
    ],
)
def test_where_it_may_not_listen(text: str, why: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"cannot listen on {text}: {why}")) as caught:
        open_listener(text)
    assert "127.0.0.1:8443" in caught.value.hint


def test_where_it_listens_is_what_the_link_says() -> None:
    with open_listener("localhost:0") as one, open_listener("0.0.0.0:0", remote=True) as every:
        assert url_of(one) == f"https://127.0.0.1:{one.getsockname()[1]}"
        assert url_of(every) == f"https://{os.uname().nodename}:{every.getsockname()[1]}"
        with pytest.raises(InputError, match="port in use"):
            open_listener(f"127.0.0.1:{one.getsockname()[1]}")


def test_on_a_terminal_the_status_is_rewritten_below_the_lines_that_stay() -> None:
    out = Terminal()
    screen = Screen(out)
    screen.line("a head")
    screen.status("0/3 converged", 0.0)
    screen.status("3/3 converged", 1.0)
    screen.line("dark: 2 nodes")
    screen.status("x" * 200, 2.0)
    screen.close()
    erase = "\r\x1b[2K"
    assert out.getvalue() == (
        f"a head\n{erase}0/3 converged{erase}3/3 converged{erase}dark: 2 nodes\n{erase}{'x' * 79}\n"
    )


def test_elsewhere_there_is_a_line_of_status_every_seven_seconds() -> None:
    out = io.StringIO()
    screen = Screen(out)
    for second in range(21):
        screen.status(f"at {second}", float(second))
    screen.close()
    assert out.getvalue() == "at 0\nat 7\nat 14\n"


CAN = {
    ("GET", "/v1/nodes/{name}"),
    ("PATCH", "/v1/nodes/{name}"),
    ("GET", "/v1/nodes/{name}/blame"),
    ("GET", "/v1/nodes/{name}/explain"),
    ("GET", "/v1/nodes/{name}/files"),
    ("GET", "/v1/nodes/{name}/files/content"),
    ("GET", "/v1/nodes/{name}/releases"),
}
"""Routes about one node that the head answers by itself."""


def test_each_route_about_one_node_is_answered_in_a_simulation_or_refused_in_words() -> None:
    routes = {(route.method, route.path): route for route in all_routes()}
    about_one = {key for key, route in routes.items() if route.reach is Reach.NODE}
    assert about_one - ROUTES.keys() == CAN and ROUTES.keys() <= routes.keys()
    assert CALLS.keys() <= modules.standard().calls.keys()
