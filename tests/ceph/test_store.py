"""The image store over a real Ceph: what it pushes, what nodes are told, what they may do, and how
each failure reads."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import rados
import rbd
from cephrun import POOL, Ceph
from patience import patience
from smallimages import build_plain_image

from imageapi.store.content import open_squashfs
from imageapi.store.hashtree import HashTree
from imageapi.store.rbdstore import Cluster, RbdContent, RbdJobs, read_keyring
from imageapi.store.store import Image, ImageStore
from layercake.kraken.errors import InputError, OperationFailed, Unreachable
from tests.ceph.test_cluster import pool


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("images")
    return build_plain_image(directory / "one", "one"), build_plain_image(directory / "two", "two")


def cluster_of(
    ceph: Ceph, client: str = "layercake", *, node_keyring: bool = True, pool_name: str = POOL
) -> Cluster:
    theirs = str(ceph.keyring("node")) if node_keyring else ""
    return Cluster(str(ceph.conf), str(ceph.keyring(client)), pool_name, node_keyring=theirs)


@pytest.fixture
def store(ceph: Ceph, tmp_path: Path) -> Iterator[ImageStore]:
    directory = tmp_path / "store"
    jobs = RbdJobs(cluster_of(ceph), answer_s=3)
    found = ImageStore(directory, content=RbdContent(directory, cluster_of(ceph), jobs=jobs))
    yield found
    for image in found.list():
        found.remove(image.name)
    with pool(ceph, "layercake") as ioctx:
        assert rbd.RBD().list(ioctx) == []


def rbd_name(image: Image) -> str:
    return f"image.{image.digest.partition(':')[2]}"


def test_an_image_is_pushed_once_and_attached_by_facts_that_veritysetup_agrees_with(
    ceph: Ceph, store: ImageStore, files: tuple[Path, Path], tmp_path: Path
) -> None:
    image = store.add(files[0], "app", {"command": ["/init"]})
    again = store.add(files[0], "other", {})
    assert again.digest == image.digest
    found = store.attachment(image.digest)
    assert found is not None
    assert found.attach == {
        "kind": "rbd",
        "monitors": [f"{ceph.address}:6789"],
        "pool": POOL,
        "image": rbd_name(image),
        "snapshot": "v1",
        "user": "node",
        "secret": f"ceph-{POOL}",
    }
    with pool(ceph, "node") as ioctx:
        assert rbd.RBD().list(ioctx) == [rbd_name(image)]
        with rbd.Image(ioctx, rbd_name(image), snapshot="v1", read_only=True) as opened:
            data = opened.read(0, opened.size())
    assert data[: image.size] == files[0].read_bytes()
    assert store.file(image.digest, tmp_path / "copy").read_bytes() == files[0].read_bytes()
    device, verity = tmp_path / "device", found.verity
    device.write_bytes(data)
    check = [
        "veritysetup",
        "verify",
        str(device),
        str(device),
        verity["root_hash"],
        "--no-superblock",
        "--hash=sha256",
        f"--data-blocks={verity['data_blocks']}",
        f"--hash-offset={verity['hash_offset']}",
        f"--salt={verity['salt']}",
    ]
    assert subprocess.run(check, check=False, capture_output=True).returncode == 0
    device.write_bytes(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
    assert subprocess.run(check, check=False, capture_output=True).returncode != 0
    assert (
        ImageStore(
            store.directory, content=RbdContent(store.directory, cluster_of(ceph))
        ).attachment(image.digest)
        == found
    )


@pytest.mark.parametrize("blocks", [1, 2, 128, 129, 128 * 128 + 1])
def test_hash_tree_is_the_one_that_veritysetup_builds(tmp_path: Path, blocks: int) -> None:
    data = b"".join(n.to_bytes(4, "big") * 1024 for n in range(blocks))
    tree = HashTree(b"salt")
    for at in range(0, len(data), 1 << 20):
        tree.feed(data[at : at + (1 << 20)])
    root, levels = tree.finish()
    device, theirs = tmp_path / "data", tmp_path / "tree"
    device.write_bytes(data)
    done = subprocess.run(
        [
            "veritysetup",
            "format",
            str(device),
            str(theirs),
            "--no-superblock",
            "--hash=sha256",
            f"--salt={b'salt'.hex()}",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    assert f"Root hash:      \t{root}" in done.stdout
    assert theirs.read_bytes() == levels if levels else theirs.stat().st_size == 0


def test_names_move_and_what_nobody_needs_is_removed(
    ceph: Ceph, store: ImageStore, files: tuple[Path, Path]
) -> None:
    old = store.add(files[0], "app", {})
    new = store.add(files[1], "app", {})
    assert store.prune({old.digest}) == [], "a node runs it still"
    assert store.prune(set()) == [old.digest]
    assert store.attachment(old.digest) is None
    with pool(ceph, "layercake") as ioctx:
        assert rbd.RBD().list(ioctx) == [rbd_name(new)]


def test_a_snapshot_cannot_be_removed_by_mistake(
    ceph: Ceph, store: ImageStore, files: tuple[Path, Path]
) -> None:
    image = store.add(files[0], "app", {})
    with (
        pool(ceph, "layercake") as ioctx,
        rbd.Image(ioctx, rbd_name(image)) as opened,
        pytest.raises(rbd.ImageBusy),
    ):
        opened.remove_snap("v1")


def test_files_of_before_the_change_to_ceph_are_served_as_before(
    ceph: Ceph, tmp_path: Path, files: tuple[Path, Path]
) -> None:
    old = ImageStore(tmp_path).add(files[0], "app", {})
    store = ImageStore(tmp_path, content=RbdContent(tmp_path, cluster_of(ceph)))
    assert store.get("app") == old
    assert store.attachment(old.digest) is None
    store.verify("app")
    store.add(files[0], "app", {})
    assert store.attachment(old.digest) is not None
    store.remove("app")
    assert not store.path(old.digest).exists()


def test_a_change_behind_the_heads_back_is_noticed(
    ceph: Ceph, store: ImageStore, files: tuple[Path, Path]
) -> None:
    image = store.add(files[0], "app", {})
    store.verify("app")
    with pool(ceph, "layercake") as ioctx:
        with rbd.Image(ioctx, rbd_name(image)) as opened:
            opened.unprotect_snap("v1")
            opened.remove_snap("v1")
        with pytest.raises(
            OperationFailed, match="cannot verify image app: there is no such image, or it has no"
        ):
            store.verify("app")
        with rbd.Image(ioctx, rbd_name(image)) as opened:
            opened.write(b"xxxx", 5000)
            opened.create_snap("v1")
            opened.protect_snap("v1")
    with pytest.raises(OperationFailed, match="changed or damaged"):
        store.verify("app")


def test_an_image_that_another_head_signed_is_not_used(
    ceph: Ceph, store: ImageStore, files: tuple[Path, Path], tmp_path: Path
) -> None:
    store.add(files[0], "app", {})
    theirs = ImageStore(
        tmp_path / "theirs", content=RbdContent(tmp_path / "theirs", cluster_of(ceph))
    )
    with pytest.raises(OperationFailed, match="this head has not signed"):
        theirs.add(files[0], "app", {})
    assert theirs.list() == []


def test_what_another_head_has_in_the_pool_is_not_removed(
    ceph: Ceph, store: ImageStore, files: tuple[Path, Path], tmp_path: Path
) -> None:
    theirs = ImageStore(
        tmp_path / "theirs", content=RbdContent(tmp_path / "theirs", cluster_of(ceph))
    )
    image = theirs.add(files[1], "theirs", {})
    store.add(files[0], "app", {})
    assert store.prune(set()) == []
    theirs.verify("theirs")
    with pool(ceph, "layercake") as ioctx:
        assert rbd_name(image) in rbd.RBD().list(ioctx)
    theirs.remove("theirs")


def test_a_push_that_was_cut_short_is_made_again(
    ceph: Ceph, store: ImageStore, files: tuple[Path, Path]
) -> None:
    image = store.add(files[0], "app", {})
    with pool(ceph, "layercake") as ioctx, rbd.Image(ioctx, rbd_name(image)) as opened:
        opened.unprotect_snap("v1")
        opened.remove_snap("v1")
    assert store.add(files[0], "app", {}) == image
    store.verify("app")


def test_the_nodes_key_is_handed_out_by_its_name_only_and_kept_from_others(
    ceph: Ceph, store: ImageStore, files: tuple[Path, Path]
) -> None:
    store.add(files[0], "app", {})
    key = store.secret(f"ceph-{POOL}")
    assert key == read_keyring(ceph.keyring("node"))["node"]
    assert len(base64.b64decode(key)) > 16
    with pytest.raises(OperationFailed, match="no such secret"):
        store.secret("signing.key")
    for name in ("node.key", "signing.key"):
        assert (store.directory / name).stat().st_mode & 0o077 == 0
    for name in ("cluster.json", "index.json"):
        assert key not in (store.directory / name).read_text()


def test_the_head_makes_the_nodes_key_where_it_may(
    ceph: Ceph, tmp_path: Path, files: tuple[Path, Path]
) -> None:
    may = ImageStore(
        tmp_path / "may",
        content=RbdContent(tmp_path / "may", cluster_of(ceph, "admin", node_keyring=False)),
    )
    image = may.add(files[0], "app", {})
    found = may.attachment(image.digest)
    assert found is not None
    assert found.attach["user"] == f"layercake-node-{POOL}"
    assert may.secret(found.attach["secret"])
    may.remove("app")
    may_not = ImageStore(
        tmp_path / "not", content=RbdContent(tmp_path / "not", cluster_of(ceph, node_keyring=False))
    )
    with pytest.raises(OperationFailed, match="may not make a key for the nodes") as caught:
        may_not.add(files[0], "app", {})
    assert "ceph auth get-or-create" in caught.value.hint


def test_each_node_has_a_key_that_reads_and_is_made_anew_and_ended(
    ceph: Ceph, tmp_path: Path, files: tuple[Path, Path]
) -> None:
    found = ImageStore(
        tmp_path / "keys",
        content=RbdContent(tmp_path / "keys", cluster_of(ceph, "admin", node_keyring=False)),
    )
    image = found.add(files[0], "app", {})

    def user_of(node: str) -> tuple[str, Path]:
        attach = found.attachment(image.digest, node)
        assert attach is not None
        user = attach.attach["user"]
        ring = tmp_path / f"{user}.keyring"
        ring.write_text(f"[client.{user}]\n\tkey = {found.secret(attach.attach['secret'], node)}\n")
        return user, ring

    def reads(user: str, ring: Path) -> bool:
        options = {"keyring": str(ring), "client_mount_timeout": "5"}
        cluster = rados.Rados(conffile=str(ceph.conf), name=f"client.{user}", conf=options)
        try:
            cluster.connect(timeout=20)
            with (
                cluster.open_ioctx(POOL) as ioctx,
                rbd.Image(ioctx, rbd_name(image), snapshot="v1", read_only=True) as opened,
            ):
                with pytest.raises(rbd.Error):
                    rbd.RBD().create(ioctx, "written", 1 << 20)
                return bool(opened.read(0, 4) == b"hsqs")
        except rados.Error:
            return False
        finally:
            cluster.shutdown()

    assert found.make_keys(["n0", "n1"]) == ["n0", "n1"] and found.make_keys(["n0"]) == []
    first, other = user_of("n0"), user_of("n1")
    assert first[1].read_text().split("key")[1] != other[1].read_text().split("key")[1]
    assert reads(*first) and reads(*other)
    assert found.make_keys(["n0"], anew=True) == ["n0"]
    second = user_of("n0")
    assert reads(*second) and reads(*first), "what is attached goes on"
    assert found.drop_old_keys(["n0"], ["n0", "n1"]) == [first[0]]
    assert not reads(*first) and reads(*second) and reads(*other)
    assert found.drop_old_keys([], []) == sorted([second[0], other[0]]), "nodes that are gone"
    assert not reads(*second)
    found.remove("app")


def test_wrong_key_and_missing_pool_are_told_apart(
    ceph: Ceph, tmp_path: Path, files: tuple[Path, Path]
) -> None:
    keyring = tmp_path / "wrong.keyring"
    keyring.write_text(
        ceph.keyring("layercake")
        .read_text()
        .replace(
            read_keyring(ceph.keyring("layercake"))["layercake"],
            read_keyring(ceph.keyring("node"))["node"],
        )
    )
    node = str(ceph.keyring("node"))
    cluster = Cluster(str(ceph.conf), str(keyring), POOL, node_keyring=node)
    wrong = ImageStore(tmp_path / "a", content=RbdContent(tmp_path / "a", cluster))
    with pytest.raises(OperationFailed, match="refuses the key in") as caught:
        wrong.add(files[0], "app", {})
    assert read_keyring(keyring)["layercake"] not in str(caught.value)
    missing = ImageStore(
        tmp_path / "b", content=RbdContent(tmp_path / "b", cluster_of(ceph, pool_name="nowhere"))
    )
    with pytest.raises(OperationFailed, match="nowhere"):
        missing.check()
    with pytest.raises(InputError, match="cannot read the Ceph keyring"):
        RbdContent(tmp_path / "c", Cluster(str(ceph.conf), str(tmp_path / "none"), POOL)).check()


def test_full_pool_is_a_clear_error_and_leaves_nothing(
    ceph: Ceph, store: ImageStore, files: tuple[Path, Path]
) -> None:
    store.add(files[0], "app", {})
    ceph.set_full(True)
    try:
        start = time.monotonic()
        with pytest.raises(OperationFailed, match=f"pool {POOL} is full"):
            store.add(files[1], "more", {})
        assert time.monotonic() - start < patience(10)
        assert [i.name for i in store.list()] == ["app"]
        store.verify("app")
    finally:
        ceph.set_full(False)
    store.add(files[1], "more", {})


def test_monitor_away_is_a_clear_error_in_bounded_time(
    ceph: Ceph, store: ImageStore, files: tuple[Path, Path]
) -> None:
    image = store.add(files[0], "app", {})
    ceph.stop_mon()
    try:
        start = time.monotonic()
        with pytest.raises(Unreachable, match="does not answer in time"):
            store.check()
        assert time.monotonic() - start < patience(8)
        assert store.attachment(image.digest) is not None, (
            "the head goes on telling nodes what it knows"
        )
        with pytest.raises(Unreachable, match="image app was removed, but not its content"):
            store.remove("app")
        assert store.list() == []
    finally:
        ceph.start_mon()
    assert POOL in store.check()
    assert store.prune(set()) == [image.digest]


def test_osd_away_is_a_clear_error_in_bounded_time_and_leaves_nothing(
    ceph: Ceph, store: ImageStore, files: tuple[Path, Path]
) -> None:
    ceph.stop_osd()
    try:
        start = time.monotonic()
        with pytest.raises(Unreachable, match="does not answer in time"):
            store.add(files[0], "app", {})
        assert time.monotonic() - start < patience(12)
        assert store.list() == []
    finally:
        ceph.start_osd()
    store.add(files[0], "app", {})
    store.verify("app")


def test_a_helper_that_hangs_or_dies_is_a_clear_error(ceph: Ceph, tmp_path: Path) -> None:
    for script, kind, text in (
        ("exec sleep 60", Unreachable, "did not answer for 1 s"),
        ("echo 'FAILED ceph_assert(x)' >&2; kill -ABRT $$", OperationFailed, "ceph_assert"),
    ):
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        start = time.monotonic()
        with pytest.raises(kind, match=text):
            RbdJobs(cluster_of(ceph), python=str(python), stall_s=1.0).run("check", "use the pool")
        assert time.monotonic() - start < patience(5)


def test_each_job_reads_the_file_that_was_checked(tmp_path: Path) -> None:
    """Another file may come into its place between the jobs."""
    path = tmp_path / "one.squashfs"
    path.write_bytes(b"hsqs" + bytes(5000))
    jobs = RbdJobs(Cluster("none", "none", POOL, user="nobody"))
    with open_squashfs(path) as source:
        digests = []
        for _ in range(2):
            tree = str(tmp_path / "tree")
            digests.append(jobs.run("measure", "add", source=source.fileno(), tree=tree)["digest"])
            path.rename(tmp_path / f"{len(digests)}")
            path.write_bytes(b"hsqs" + b"another one")
    assert digests[0] == digests[1]
