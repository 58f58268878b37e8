"""What is different between two images, read from real squashfs files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from imageapi.build.contents import contents, difference, parse_status, read, shown
from imageapi.build.squash import squash
from layercake.kraken.errors import OperationFailed

STATUS = """\
Package: bash
Status: install ok installed
Architecture: amd64
Version: {bash}

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36

Package: gone
Status: deinstall ok config-files
Version: 1
"""


def tree(root: Path, bash: str) -> Path:
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text(STATUS.format(bash=bash))
    (root / "etc").mkdir()
    (root / "etc/same").write_text("same")
    (root / "etc/linked").hardlink_to(root / "etc/same")
    (root / "etc/with space").write_text(bash)
    (root / "etc/back\\slash\nand line").write_text("x" * 3_000_000)
    (root / "etc/empty").touch()
    (root / "link").symlink_to("etc/same")
    return root


@pytest.mark.root
def test_packages_and_files_that_differ(tmp_path: Path) -> None:
    old = squash(tree(tmp_path / "a", "5.2-1"), tmp_path / "a.squashfs")
    new_tree = tree(tmp_path / "b", "5.2-2")
    (new_tree / "link").unlink()
    (new_tree / "link").symlink_to("etc/other")
    (new_tree / "etc/same").chmod(0o600)
    (new_tree / "etc/empty").unlink()
    os.mkfifo(new_tree / "pipe")
    (new_tree / "new").write_text("12345")
    new = squash(new_tree, tmp_path / "b.squashfs")
    answer = json.loads(
        subprocess.run(
            [sys.executable, "-m", "imageapi.build.contents", str(old), str(new)],
            check=True,
            capture_output=True,
        ).stdout
    )
    assert answer["packages"] == {
        "added": [],
        "removed": [],
        "changed": [{"name": "bash", "from": "5.2-1", "to": "5.2-2"}],
    }
    files = answer["files"]
    assert [(f["path"], f["kind"]) for f in files["added"]] == [
        ("new", "file"),
        ("pipe", "pipe or socket"),
    ]
    assert [f["path"] for f in files["removed"]] == ["etc/empty"]
    assert {f["path"]: f["what"] for f in files["changed"]}.items() >= {
        "link": ["content"],
        "etc/with space": ["content"],
        "var/lib/dpkg/status": ["content"],
    }.items()
    assert any(f["what"] == ["mode"] for f in files["changed"])
    assert not any("line" in f["path"] for kind in files.values() for f in kind), "the same in both"


@pytest.mark.parametrize("name", [b"r\xe9sum\xe9", b"\xff", b"\xed\xa0\x80", b"\xf0\x9f"])
def test_a_name_that_is_no_utf8_can_be_sent(name: bytes) -> None:
    listing = b"/ D 0 755 0 0\n" + name + b" I 0 644 0 0 0 p\n"
    old = read(io.BytesIO(b"/ D 0 755 0 0\n#\n# START OF DATA\n#\n"))
    new = read(io.BytesIO(listing + b"#\n# START OF DATA\n#\n"))
    text = json.dumps(difference(old, new), ensure_ascii=False)
    text.encode()  # raises for half of a surrogate pair
    assert shown(os.fsdecode(name)) in [f["path"] for f in difference(old, new)["files"]["added"]]
    assert shown("na\\me") == "na\\me"


@pytest.mark.root
def test_names_come_through_whole(tmp_path: Path) -> None:
    found = contents(squash(tree(tmp_path / "a", "1"), tmp_path / "a.squashfs"))
    assert found.entries["etc/back\\slash\nand line"].size == 3_000_000
    assert found.packages == {"bash": "1", "libc6": "2.36"}
    assert difference(found, found) == {
        "packages": {"added": [], "removed": [], "changed": []},
        "files": {"added": [], "removed": [], "changed": []},
        "left_out": 0,
    }


def test_what_is_no_image_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"hsqs" + b"\0" * 5000)
    with pytest.raises(OperationFailed, match="cannot read"):
        contents(tmp_path / "x")
    done = subprocess.run(
        [sys.executable, "-m", "imageapi.build.contents", str(tmp_path / "x"), str(tmp_path / "y")],
        check=False,
        capture_output=True,
    )
    assert done.returncode == 1 and "cannot read" in json.loads(done.stdout)["error"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"/ D 0 755 0 0\nfile X nonsense\n# START OF DATA - DO NOT MODIFY\n#\n", ValueError),
        (b"f R 0 644 0 0 10 0 0\n#\n# START OF DATA - DO NOT MODIFY\n#\nshort", EOFError),
        (b"f R 0 644 0 0 2 5 0\n#\n# START OF DATA - DO NOT MODIFY\n#\nxxxxxxxx", ValueError),
    ],
)
def test_a_broken_listing_is_not_believed(text: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        read(io.BytesIO(text))


def test_packages_of_several_architectures() -> None:
    text = (
        "Package: libc6\nArchitecture: amd64\nVersion: 1\n\nPackage: libc6\nArchitecture: "
        "i386\nVersion: 1\n"
    )
    assert parse_status(text) == {"libc6": "1", "libc6:i386": "1"}
