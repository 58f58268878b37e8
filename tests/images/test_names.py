"""Names in images: the node's name servers, and its own names beside what the image's hosts file
says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imageapi.node.imageset.bundles import give_names

OWN = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n10.20.0.10 n1.far.test n1\n"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The node's /etc."""
    etc = tmp_path / "own"
    etc.mkdir()
    (etc / "hosts").write_text(OWN)
    (etc / "resolv.conf").write_text("search far.test\nnameserver 10.1.1.1\n")
    return etc


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An image's root."""
    (tmp_path / "root/etc").mkdir(parents=True)
    return tmp_path / "root"


def test_an_image_without_hosts_has_those_of_the_node(root: Path, own: Path) -> None:
    give_names(root, own)
    assert (root / "etc/hosts").read_text() == OWN
    assert (root / "etc/resolv.conf").read_text() == "search far.test\nnameserver 10.1.1.1\n"


def test_what_an_image_says_of_hosts_stays_and_the_node_is_added(root: Path, own: Path) -> None:
    (root / "etc/hosts").write_text(
        "127.0.0.1 localhost # us\n::1 ip6-localhost\n10.9.9.9 licences  # n1\n"
    )
    give_names(root, own)
    assert (root / "etc/hosts").read_text() == (
        "127.0.0.1 localhost # us\n::1 ip6-localhost\n10.9.9.9 licences  # n1\n10.20.0.10 "
        "n1.far.test n1\n"
    )


def test_an_image_that_names_the_node_itself_is_right(root: Path, own: Path) -> None:
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 n1\n")
    give_names(root, own)
    assert (root / "etc/hosts").read_text() == "127.0.0.1 localhost\n127.0.1.1 n1\n"


def test_what_an_image_arranges_itself_is_left(root: Path, own: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine\n")
    for name in ("hosts", "resolv.conf"):
        (root / "etc" / name).symlink_to(tmp_path / "victim")
    give_names(root, own)
    assert (tmp_path / "victim").read_text() == "mine\n"
    bare = tmp_path / "bare"
    bare.mkdir()
    give_names(bare, own)
    assert list(bare.iterdir()) == []


def test_what_is_no_file_in_an_image_is_left_alone(tmp_path: Path) -> None:
    """To open a FIFO waits for somebody at its other end."""
    root, own = tmp_path / "root", tmp_path / "own"
    for directory in (root / "etc", own):
        directory.mkdir(parents=True)
    for name in ("hosts", "resolv.conf"):
        (own / name).write_text("10.0.0.1 n1\n")
        os.mkfifo(root / "etc" / name)
    give_names(root, own)
    assert all((root / "etc" / name).is_fifo() for name in ("hosts", "resolv.conf"))
