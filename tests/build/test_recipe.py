"""How an image wants to be run, from its configuration and from what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from imageapi.build.build import Options, how_to_run, source_date
from imageapi.build.recipe import Recipe, read
from imageapi.build.rootfs import lookup
from layercake.kraken.errors import InputError


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, Recipe()),
        (
            {"Entrypoint": ["/a"], "Cmd": ["b"], "Env": ["X=1=2", "A="], "WorkingDir": "/w"},
            Recipe(None, ("/a", "b"), (("A", ""), ("X", "1=2")), "/w"),
        ),
        ({"Cmd": ["/sbin/init"]}, Recipe(True, ("/sbin/init",))),
        ({"StopSignal": "SIGRTMIN+3"}, Recipe(True)),
    ],
)
def test_a_configuration_is_read(config: dict[str, Any], expected: Recipe) -> None:
    assert read(config) == expected


def test_what_cannot_be_taken_over_is_said() -> None:
    found = read(
        {"Cmd": ["x"], "User": "www:www", "StopSignal": "SIGINT", "Env": ["no name", "1=2"]}
    )
    assert [note.split()[0] for note in found.notes] == ["Env", "Env", "StopSignal", "User"]
    assert read({"Cmd": ["x"], "User": "0:0", "StopSignal": "SIGTERM"}).notes == ()


@pytest.mark.parametrize(
    "config", [{"Cmd": "x"}, {"Env": [1]}, {"WorkingDir": "w"}, {"User": 3}, {"Cmd": ["a\0b"]}]
)
def test_a_wrong_configuration_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="configuration"):
        read(config)


@pytest.fixture
def debian(tmp_path: Path) -> Path:
    for name in ("usr/lib/systemd/systemd", "usr/bin/sh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "sbin").symlink_to("usr/sbin")
    (tmp_path / "bin").symlink_to("/usr/bin")
    (tmp_path / "usr/sbin").mkdir()
    (tmp_path / "usr/sbin/init").symlink_to("/lib/systemd/systemd")
    (tmp_path / "lib").symlink_to("usr/lib")
    return tmp_path


def test_who_decides_what_runs(debian: Path) -> None:
    assert how_to_run(debian, Recipe(), Options())[:2] == (True, ())
    assert how_to_run(debian, Recipe(command=("sh",)), Options())[:2] == (False, ("sh",))
    assert how_to_run(debian, Recipe(command=("sh",)), Options(systemd=True))[:2] == (True, ())
    assert how_to_run(debian, Recipe(), Options(command=("sh", "-c")))[:2] == (False, ("sh", "-c"))
    assert how_to_run(debian, Recipe(env=(("A", "1"), ("B", "1"))), Options(env=(("A", "2"),)))[
        2
    ] == (("A", "2"), ("B", "1"))
    (debian / "usr/sbin/init").unlink()
    with pytest.raises(InputError, match="no /sbin/init"):
        how_to_run(debian, Recipe(systemd=True), Options())


def test_links_are_followed_inside_the_image_only(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/../../../../etc/passwd")
    (tmp_path / "loop").symlink_to("loop")
    assert lookup(tmp_path, "/a") is None
    assert lookup(tmp_path, "/loop") is None
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").touch()
    assert lookup(tmp_path, "/a") == tmp_path / "etc/passwd"


@pytest.mark.parametrize("text", ["x", "-1", "99999999999", "1.5"])
def test_a_wrong_source_date_is_refused(text: str) -> None:
    assert source_date({}) == source_date({"SOURCE_DATE_EPOCH": ""}) == 0
    with pytest.raises(InputError, match="SOURCE_DATE_EPOCH"):
        source_date({"SOURCE_DATE_EPOCH": text})
