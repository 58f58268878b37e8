"""Directories of images that outlive them: filled by the image once, kept by path, and never led
astray by the image's links."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from imageapi.node import mount
from imageapi.node.imageset.kept import binds
from imageapi.spec.image import ImageSpec, parse_image
from layercake.kraken.errors import OperationFailed

pytestmark = pytest.mark.root


def spec(*paths: str) -> ImageSpec:
    return parse_image(
        {
            "name": "db",
            "digest": f"blake2b:{'a' * 64}",
            "size": 1,
            "url": "http://h/x",
            "container": {"keep": list(paths)},
        }
    )


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """RUN/kept over a file system of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount.mount("tmpfs", disk, "tmpfs", 0, "size=4m")
    (tmp_path / "kept").symlink_to(disk)
    try:
        yield tmp_path / "kept"
    finally:
        mount.unmount(disk)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    top = tmp_path / "root"
    (top / "var/lib/db").mkdir(parents=True)
    (top / "var/lib/db/schema").write_text("v1")
    (top / "var/lib/db").chmod(0o750)
    (top / "srv").symlink_to("/etc")
    return top


def test_an_image_that_keeps_nothing_needs_no_disk(tmp_path: Path, root: Path) -> None:
    assert binds(spec(), root, tmp_path / "kept") == []
    with pytest.raises(OperationFailed, match="no disk of this node is for that"):
        binds(spec("/var/lib/db"), root, tmp_path / "kept")
    (tmp_path / "kept").symlink_to(tmp_path)
    with pytest.raises(
        OperationFailed, match="no disk of this node"
    ):  # nothing is mounted there: it would be lost
        binds(spec("/var/lib/db"), root, tmp_path / "kept")


def test_the_first_time_it_has_what_the_image_brings(place: Path, root: Path) -> None:
    (first,) = binds(spec("/var/lib/db"), root, place)
    kept = Path(first.source)
    assert first.target == "/var/lib/db" and not first.readonly
    assert (kept / "schema").read_text() == "v1" and kept.stat().st_mode & 0o777 == 0o750
    (kept / "schema").write_text("v2")
    (
        kept.parent / f".{kept.name}.new"
    ).mkdir()  # what an agent left that was killed while it copied something else
    (again,) = binds(spec("/var/lib/db"), root, place)
    assert again == first and (kept / "schema").read_text() == "v2"
    (root / "var/lib/db/schema").write_text("v3")
    assert [
        Path(b.source).name for b in binds(spec("/var/lib/db", "/var/lib/other"), root, place)
    ] == ["var%2Flib%2Fdb", "var%2Flib%2Fother"]
    assert (kept / "schema").read_text() == "v2"


def test_a_copy_that_was_cut_off_is_begun_anew(place: Path, root: Path) -> None:
    half = place / "layercake/.var%2Flib%2Fdb.new"
    half.mkdir(parents=True)
    (half / "half").write_text("")
    (found,) = binds(spec("/var/lib/db"), root, place)
    assert (
        sorted(path.name for path in Path(found.source).iterdir()) == ["schema"]
        and not half.exists()
    )


def test_a_link_of_an_image_leads_nowhere(place: Path, root: Path) -> None:
    (found,) = binds(spec("/srv"), root, place)
    assert list(Path(found.source).iterdir()) == [], "nothing of the node's /etc"


def test_a_full_disk_is_told(place: Path, root: Path) -> None:
    (root / "var/lib/db/large").write_bytes(bytes(8 << 20))
    with pytest.raises(
        OperationFailed, match=r"cannot make what image db keeps of /var/lib/db: .*No space left"
    ):
        binds(spec("/var/lib/db"), root, place)
    (root / "var/lib/db/large").unlink()
    assert binds(spec("/var/lib/db"), root, place)
