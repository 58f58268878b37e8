"""Attach and mount objects: nested and by id, shared, counted, cascading, surviving an agent; with
a real kernel."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from smallimages import build_plain_image

from imageapi.events import unheard
from imageapi.node.attach import nbd
from imageapi.node.attach.attachments import Attachments
from imageapi.node.attach.fetch import FileBody
from imageapi.node.attach.loop import find as find_loops
from imageapi.node.mount import is_mounted, known_filesystems, mount_points
from imageapi.node.objects.objects import Objects
from imageapi.spec.objects import parse_attach, parse_container_mount, parse_mount
from layercake.base.packets.netlink import attributes
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed, Refused
from tests.support.images import Node, eventually, spec_of, used_loops
from tests.support.namespace import run_as_agent
from tests.support.servers import answers, connected

DIGEST = "blake2b:" + "a" * 64
HTTP = {"kind": "http", "url": "http://h/x", "digest": DIGEST, "size": 5}
RBD = {
    "kind": "rbd",
    "monitors": ["10.0.0.1:6789"],
    "pool": "p",
    "image": "i",
    "snapshot": "s",
    "user": "u",
    "secret": "k",
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plain_image(tmp_path_factory.mktemp("i") / "one.squashfs", "one")


def table(run: Path) -> Objects:
    return Objects(
        run,
        Attachments(run, lambda url, offset: FileBody(url.removeprefix("file://"), offset)),
        unheard,
    )


@pytest.mark.parametrize(
    ("data", "complete"),
    [
        ({"kind": "local", "path": "/dev/vdb"}, {"kind": "local", "path": "/dev/vdb"}),
        ({"kind": "loopback", "path": "/x"}, {"kind": "loopback", "path": "/x", "readonly": False}),
        (HTTP, HTTP),
        (RBD, RBD),
        (
            {"kind": "nbd", "host": "h"},
            {"kind": "nbd", "host": "h", "port": 10809, "export": "", "readonly": False},
        ),
        (
            {"kind": "iscsi", "portal": "10.0.0.1", "target": "iqn.2026-11.org:x"},
            {"kind": "iscsi", "portal": "10.0.0.1:3260", "target": "iqn.2026-11.org:x", "lun": 0},
        ),
        ({"id": "a3"}, {"id": "a3"}),
    ],
)
def test_attachments_are_completed(data: dict[str, Any], complete: dict[str, Any]) -> None:
    assert parse_attach(data) == complete
    assert parse_attach(complete) == complete


@pytest.mark.parametrize(
    ("uri", "kind", "inner"),
    [
        ("file:///srv/data", "bind", None),
        ("file:///x.squashfs", "attach", "loopback"),
        ("nfs://10.0.0.1/export", "nfs", None),
        ("nbd://h:99/disk", "attach", "nbd"),
        ("iscsi://h/iqn.2026-11.org:x/3", "attach", "iscsi"),
        ("https://h/x", "attach", "http"),
    ],
)
def test_a_uri_stands_for_a_mount(uri: str, kind: str, inner: str | None) -> None:
    more = {"digest": DIGEST, "size": 5} if uri.startswith("http") else {}
    found = parse_mount({"kind": "uri", "uri": uri, **more})
    assert found["kind"] == kind and found.get("attach", {}).get("kind") == inner
    assert parse_mount(found) == found


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"kind": "magic"},
        {"id": "../x"},
        {"id": "a1", "kind": "bind"},
        {"kind": "bind", "source": "etc"},
        {"kind": "bind", "source": "/a/../etc"},
        {"kind": "bind", "source": "/a", "extra": 1},
        {"kind": "nfs", "source": "/x"},
        {"kind": "nfs", "source": "h:/x", "options": "a b"},
        {"kind": "nfs", "source": "h;rm:/x"},
        {"kind": "tmpfs", "size": "1m,uid=0"},
        {"kind": "attach", "attach": {"kind": "nbd"}},
        {"kind": "overlay", "lower": []},
        {"kind": "overlay", "lower": [{"kind": "tmpfs"}], "size": "x"},
        {"kind": "uri", "uri": "gopher://x"},
        {"kind": "uri", "uri": "http://h/x"},
        {"kind": "uri", "uri": "iscsi://h/iqn.x/\u0663"},
        {"kind": "attach", "attach": {"kind": "nbd", "host": "h", "port": 0}},
        {"kind": "attach", "attach": {"kind": "iscsi", "portal": "h", "target": "iqn.x;reboot"}},
        {"kind": "attach", "attach": {"kind": "loopback", "path": "/x"}, "fstype": "../ext4"},
        {"kind": "attach", "attach": {**RBD, "pool": "p,secret=x"}},
        {
            "kind": "overlay",
            "lower": [
                {
                    "kind": "overlay",
                    "lower": [
                        {
                            "kind": "overlay",
                            "lower": [
                                {
                                    "kind": "overlay",
                                    "lower": [
                                        {
                                            "kind": "overlay",
                                            "lower": [
                                                {"kind": "overlay", "lower": [{"kind": "tmpfs"}]}
                                            ],
                                        }
                                    ],
                                }
                            ],
                        }
                    ],
                }
            ],
        },
    ],
)
def test_hostile_descriptions_are_refused(data: Any) -> None:
    with pytest.raises(InputError):
        parse_mount(data)


def test_a_container_mount_is_not_the_root() -> None:
    with pytest.raises(InputError):
        parse_container_mount({"target": "/", "kind": "tmpfs"})


@pytest.mark.root
def test_nested_objects_are_shared_counted_and_cascade(tmp_path: Path, image: Path) -> None:
    def body(run: Path) -> None:
        before, loops = set(mount_points()), used_loops()
        objects = table(run)
        spec = {
            "kind": "overlay",
            "size": "1m",
            "lower": [{"kind": "uri", "uri": f"file://{image}"}],
        }
        first, second = (
            objects.acquire("mount", spec, "user"),
            objects.acquire("mount", spec, "app-1"),
        )
        assert first != second, "what can be written to is not shared"
        assert [o["type"] for o in objects.views()] == ["mount", "mount", "attach", "mount"]
        assert len(used_loops() - loops) == 1, "one device below both"
        root = Path(objects.place(first))
        assert (root / "init").exists()
        (root / "new").write_text("x")
        with pytest.raises(OSError, match="No space left"):
            (root / "big").write_bytes(bytes(2 << 20))
        layer = objects.views()[1]["id"]
        with pytest.raises(Refused, match=f"held by {first}, {second}"):
            objects.release(layer, "user")
        assert objects.acquire("mount", {"id": layer}, "user") == layer
        with pytest.raises(InputError, match="it is of type mount"):
            objects.acquire("attach", {"id": layer}, "user")
        objects.release(first, "user")
        objects.release_all("app-1")
        assert [o["id"] for o in objects.views()] == [layer, objects.view(layer)["parts"][0]]
        objects.release(layer, "user")
        assert objects.views() == [] and set(mount_points()) <= before and used_loops() == loops
        assert list((run / "objects").iterdir()) == []

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_a_failure_half_way_leaves_nothing(tmp_path: Path, image: Path) -> None:
    def body(run: Path) -> None:
        loops, objects = used_loops(), table(run)
        loop = {"kind": "loopback", "path": str(image), "readonly": True}
        lower = [
            {"kind": "attach", "attach": loop},
            {"kind": "bind", "source": "/no/such/directory"},
        ]
        with pytest.raises(OperationFailed, match=r"cannot mount .*/no/such/directory"):
            objects.acquire("mount", {"kind": "overlay", "lower": lower}, "user")
        with pytest.raises(OperationFailed, match="cannot mount ext4"):
            objects.acquire("mount", {"kind": "attach", "attach": loop, "fstype": "ext4"}, "user")
        with pytest.raises(OperationFailed, match="no such block device"):
            objects.acquire("attach", {"kind": "local", "path": str(image)}, "user")
        assert objects.views() == [] and used_loops() == loops

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_the_table_survives_an_agent_and_finds_what_was_only_begun(
    tmp_path: Path, image: Path
) -> None:
    def body(run: Path) -> None:
        loops, objects = used_loops(), table(run)
        kept = objects.acquire("mount", {"kind": "tmpfs", "size": "1m"}, "user")
        loop = {"kind": "loopback", "path": str(image), "readonly": True}
        lost = objects.acquire("mount", {"kind": "attach", "attach": loop}, "gone-1")
        begun = objects.acquire("attach", {"kind": "loopback", "path": str(image)}, "user")
        text = (run / "objects.json").read_text()
        head, mark, rest = text.partition(f'"id": "{begun}"')
        (run / "objects.json").write_text(
            head
            + mark
            + rest.replace('"place": "/dev/', '"place": "", "error": "', 1)
            .replace('"state": "ready"', '"state": "creating"', 1)
            .replace(', "error": ""', "", 1)
        )
        later = table(run)
        assert later.place(kept) == objects.place(kept)
        later.recover(set())
        assert [o["id"] for o in later.views()] == [kept], (
            "what nobody holds is gone, what was only begun too"
        )
        assert used_loops() == loops and not is_mounted(run / "objects" / lost)
        later.release(kept, "user")

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_http_attachments_are_checked(tmp_path: Path, image: Path) -> None:
    import hashlib

    digest = hashlib.blake2b(image.read_bytes(), digest_size=32).hexdigest()
    good = {
        "kind": "http",
        "url": f"file://{image}",
        "digest": f"blake2b:{digest}",
        "size": image.stat().st_size,
    }

    def body(run: Path) -> None:
        objects = table(run)
        name = objects.acquire("mount", {"kind": "attach", "attach": good}, "user")
        assert (Path(objects.place(name)) / "init").exists()
        objects.release(name, "user")
        with pytest.raises(LayercakeError, match="its content has digest"):
            objects.acquire("attach", {**good, "digest": DIGEST}, "user")
        assert objects.views() == [] and list((run / "objects-blobs").iterdir()) == []

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_a_container_holds_its_mounts(tmp_path: Path, image: Path) -> None:
    def body(run: Path) -> None:
        node, loops = Node(run), used_loops()
        wanted = [
            {
                "target": "/extra",
                "kind": "attach",
                "attach": {"kind": "loopback", "path": str(image), "readonly": True},
            },
            {"target": "/scratch", "kind": "tmpfs", "size": "1m"},
        ]
        spec = spec_of(image, "app", mounts=tuple(parse_container_mount(m) for m in wanted))
        assert node.run(spec) == "ACTIVE", node.events
        inside = Path(f"/proc/{node.images.process_of('app').pid}/root")
        eventually(lambda: (inside / "extra/init").exists())
        (inside / "scratch/x").write_text("x")
        assert {o["holders"][0] for o in node.images.objects.views() if o["type"] == "mount"} == {
            node.images.instances()[0].id
        }
        later = Node(run)
        later.images.set_wanted([spec])
        assert later.images.adopt() == "ACTIVE"
        assert (inside / "scratch/x").exists() and len(later.images.objects.views()) == 3
        later.stop()
        assert later.images.objects.views() == [] and used_loops() == loops

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_what_this_kernel_or_node_lacks_is_said(tmp_path: Path) -> None:
    def body(run: Path) -> None:
        objects = table(run)
        if not {"nfs", "nfs4"} & known_filesystems():
            with pytest.raises(LayercakeError, match="no NFS client"):
                objects.acquire("mount", {"kind": "nfs", "source": "127.0.0.1:/x"}, "user")
        if not Path("/sys/module/nbd").exists():
            with pytest.raises(LayercakeError, match="nbd"):
                objects.acquire("attach", {"kind": "nbd", "host": "127.0.0.1"}, "user")
        assert objects.views() == [] and find_loops("lc-none") == []

    run_as_agent(tmp_path / "run", body)


@pytest.fixture
def server(tmp_path: Path, image: Path) -> Iterator[Path]:
    """A foreign NBD server, on a Unix socket."""
    path = tmp_path / "nbd.sock"
    process = subprocess.Popen(
        ["qemu-nbd", "-k", str(path), "-f", "raw", "-r", "-t", "-x", "disk", str(image)]
    )
    try:
        answers(path, process)
        yield path
    finally:
        process.terminate()
        process.wait(10)


def test_the_nbd_handshake_against_a_foreign_server(server: Path, image: Path) -> None:
    with connected(server) as link:
        found = nbd.handshake(link, "disk")
    assert found.size == -(-image.stat().st_size // 512) * 512 and found.flags & nbd.FLAG_READ_ONLY
    with connected(server) as link, pytest.raises(OperationFailed, match="export 'other'"):
        nbd.handshake(link, "other")


def test_netlink_attributes_go_there_and_back() -> None:
    data = nbd.connect_request(5, nbd.Export(1 << 20, 1), "lc-x-a1", readonly=True)
    found = attributes(data)
    assert (
        found[nbd.ATTR_SIZE] == (1 << 20).to_bytes(8, "little")
        and found[nbd.ATTR_SERVER_FLAGS][0] == 3
    )
    assert attributes(attributes(found[nbd.ATTR_SOCKETS])[1])[1] == b"\5\0\0\0"
