"""The testbed's Ceph itself: it keeps its data over a restart of the OSD, fills up, and its clients
have the rights they should."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import rados
import rbd
from cephrun import POOL, Ceph
from patience import patience

LIMITS = {"client_mount_timeout": "5", "rados_mon_op_timeout": "5", "rados_osd_op_timeout": "5"}
SIZE = 8 << 20


@contextmanager
def pool(ceph: Ceph, client: str, keyring_of: str = "") -> Iterator[Any]:
    """The pool as a client sees it; `keyring_of` is whose key it uses, its own when not given."""
    options = {**LIMITS, "keyring": str(ceph.keyring(keyring_of or client))}
    cluster = rados.Rados(conffile=str(ceph.conf), name=f"client.{client}", conf=options)
    try:
        cluster.connect(timeout=60)
        ioctx = cluster.open_ioctx(POOL)
        try:
            yield ioctx
        finally:
            ioctx.close()
    finally:
        cluster.shutdown()


@contextmanager
def image(ioctx: Any, name: str) -> Iterator[Any]:
    """A fresh image that begins with a marker, and a protected snapshot v1 of it; removed again."""
    rbd.RBD().create(ioctx, name, SIZE)
    with rbd.Image(ioctx, name) as opened:
        opened.write(b"marker", 0)
        opened.create_snap("v1")
        opened.protect_snap("v1")
    try:
        yield name
    finally:
        with rbd.Image(ioctx, name) as opened:
            opened.unprotect_snap("v1")
            opened.remove_snap("v1")
        rbd.RBD().remove(ioctx, name)


def test_content_outlives_an_osd_that_is_stopped_and_started(ceph: Ceph) -> None:
    with pool(ceph, "layercake") as ioctx, image(ioctx, "kept"):
        ceph.stop_osd()
        ceph.start_osd()
        with rbd.Image(ioctx, "kept", snapshot="v1", read_only=True) as opened:
            assert opened.read(0, 6) == b"marker"


def test_full_pool_refuses_at_once_and_still_lets_images_be_removed(ceph: Ceph) -> None:
    with pool(ceph, "layercake") as ioctx:
        ioctx.set_osdmap_full_try()  # without it, a write waits until there is room
        with image(ioctx, "there"):
            with rbd.Image(ioctx, "there") as opened:
                opened.write(b"x" * (1 << 20), 0)
            rbd.RBD().create(ioctx, "surplus", SIZE)
            try:
                ceph.set_full(True)
                start = time.monotonic()
                with pytest.raises(rbd.NoSpace):
                    rbd.RBD().create(ioctx, "no-room", SIZE)
                assert time.monotonic() - start < patience(2)
                rbd.RBD().remove(ioctx, "surplus")
                assert rbd.RBD().list(ioctx) == ["there"]
            finally:
                ceph.set_full(False)


def test_a_node_reads_and_never_writes(ceph: Ceph) -> None:
    with pool(ceph, "layercake") as ours, image(ours, "shared"), pool(ceph, "node") as theirs:
        with rbd.Image(theirs, "shared", snapshot="v1", read_only=True) as opened:
            assert opened.read(0, 6) == b"marker"
        with pytest.raises(rados.PermissionError):
            theirs.write_full("planted", b"x")
        with pytest.raises(rbd.PermissionError):
            rbd.RBD().create(theirs, "planted", SIZE)


def test_a_wrong_key_and_a_stranger_are_refused(ceph: Ceph) -> None:
    with pytest.raises(rados.PermissionDeniedError), pool(ceph, "node", keyring_of="stranger"):
        pass
    with pool(ceph, "stranger") as ioctx, pytest.raises(rados.PermissionError):
        ioctx.read("rbd_directory")


def test_an_absent_monitor_ends_in_an_error_in_bounded_time(ceph: Ceph) -> None:
    ceph.stop_mon()
    try:
        start = time.monotonic()
        with pytest.raises(rados.Error), pool(ceph, "layercake"):
            pass
        assert time.monotonic() - start < patience(15)
    finally:
        ceph.start_mon()
    with pool(ceph, "layercake") as ioctx:
        assert rbd.RBD().list(ioctx) == []


def test_keys_are_for_the_owner_only(ceph: Ceph) -> None:
    for client in ("layercake", "node"):
        for path in (ceph.keyring(client), ceph.key_file(client)):
            assert path.stat().st_mode & 0o077 == 0
