"""An image that asks for it sees the modules and the firmware of the node's kernel: real squashfs,
real mounts, a real crun."""

from __future__ import annotations

import base64
import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from smallimages import write

from imageapi.build.squash import squash
from imageapi.node import modules
from imageapi.node.attach.fetch import Body
from imageapi.node.imageset import kernel
from imageapi.node.mount import is_mounted, mount_points
from imageapi.spec.container import ContainerSpec
from imageapi.spec.image import MODULES, ImageSpec, parse_image
from layercake.kraken.errors import InputError, OperationFailed, Unreachable
from tests.support.images import Node, assert_clean, eventually, open_file, spec_of, used_loops
from tests.support.namespace import run_as_agent

RELEASE = os.uname().release
INIT = f"""#!/bin/sh
busybox cat /lib/modules/{RELEASE}/modules.dep
busybox cat /lib/firmware/made-up.bin
busybox touch /lib/modules/{RELEASE}/modules.dep 2>&1
busybox touch /lib/firmware/new 2>&1
busybox grep -E '(modules|firmware)' /proc/self/mountinfo
busybox insmod /lib/modules/{RELEASE}/kernel/made_up.ko 2>&1
echo tried
trap 'exit 0' TERM
while :; do busybox sleep 1 & wait $!; done
"""


def image(directory: Path, fill: Callable[[Path], object]) -> Path:
    """An image whose init reads the modules. `fill` makes its /lib."""
    tree = directory / "tree"
    for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
        (tree / name).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox
    shutil.copy(busybox, tree / "bin/busybox")
    for applet in ("sh", "echo"):
        (tree / "bin" / applet).symlink_to("busybox")
    write(tree / "init", INIT, 0o755)
    fill(tree)
    return squash(tree, directory / "image.squashfs")


def merged(tree: Path) -> None:
    (tree / "usr/lib").mkdir(parents=True)
    (tree / "lib").symlink_to("usr/lib")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image(tmp_path_factory.mktemp("app"), merged)


def tree_of(directory: Path, release: str = RELEASE, *, firmware: bool = True) -> Path:
    """A made-up modules.squashfs."""
    write(directory / "tree/modules" / release / "modules.dep", "kernel/made_up.ko:\n")
    write(directory / "tree/modules" / release / "kernel/made_up.ko", "this is no module\n")
    (directory / "tree/firmware").mkdir()
    if firmware:
        write(directory / "tree/firmware/made-up.bin", "microcode\n")
    return squash(directory / "tree", directory / "modules.squashfs")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree_of(tmp_path_factory.mktemp("tree"))


def asking(file: Path, given: Path | None, **container: Any) -> ImageSpec:
    spec = spec_of(file, "app", kernel_modules=True, **container)
    if given is None:
        return spec
    return dataclasses.replace(
        spec, modules=dataclasses.replace(spec_of(given, MODULES), container=ContainerSpec())
    )


def tried(node: Node) -> str:
    eventually(lambda: "tried" in node.images.logs("app", 50))
    return node.images.logs("app", 50)


@pytest.mark.root
@pytest.mark.parametrize("declared", [(), ("SYS_MODULE",)])
def test_it_sees_them_cannot_write_there_and_may_load_them_if_it_says_so(
    tmp_path: Path, app: Path, tree: Path, declared: tuple[str, ...]
) -> None:
    def body(run: Path) -> None:
        node, mounts, loops = Node(run), set(mount_points()), used_loops()
        spec = asking(app, tree, capabilities=declared)
        assert spec.modules is not None
        assert node.run(spec) == "ACTIVE", repr(node.events)
        text = tried(node)
        assert "kernel/made_up.ko:" in text and "microcode" in text
        assert text.count("Read-only file system") == 2, text
        shown = {
            line.split()[4]: set(line.split()[5].split(","))
            for line in text.splitlines()
            if " - squashfs " in line
        }
        assert shown.keys() == {f"/usr/lib/modules/{RELEASE}", "/usr/lib/firmware"}, text
        assert all({"ro", "nosuid", "nodev"} <= options for options in shown.values()), text
        assert "can't insert" in text, "it is no module"
        assert ("Operation not permitted" in text) is not bool(declared), text
        layer = run / "layers" / spec.modules.hex
        assert is_mounted(layer)
        plain = dataclasses.replace(spec, container=ContainerSpec(stop_timeout_s=5.0), modules=None)
        assert node.run(plain) == "ACTIVE"
        assert not layer.exists() and not list((run / "blobs").glob(f"{spec.modules.hex}*")), (
            "nobody uses it any more"
        )
        assert "microcode" not in tried(node)
        assert_clean(node, run, mounts, loops)

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_in_a_user_namespace_they_are_seen_and_cannot_be_loaded(
    open_path: Path, app: Path, tree: Path
) -> None:
    def body(run: Path) -> None:
        node, mounts, loops = Node(run), set(mount_points()), used_loops()
        spec = asking(app, tree, capabilities=("SYS_MODULE",), user_namespace=True)
        assert node.run(spec) == "ACTIVE", repr(node.events)
        text = tried(node)
        assert (
            "kernel/made_up.ko:" in text
            and "microcode" in text
            and text.count("Read-only file system") == 2
        ), text
        assert "can't insert" in text
        assert_clean(node, run, mounts, loops)

    run_as_agent(open_path / "run", body)


@pytest.mark.root
def test_an_agent_that_starts_anew_keeps_them_for_those_that_run(
    tmp_path: Path, app: Path, tree: Path
) -> None:
    def body(run: Path) -> None:
        node, mounts, loops = Node(run), set(mount_points()), used_loops()
        spec = asking(app, tree)
        assert spec.modules is not None and node.run(spec) == "ACTIVE", repr(node.events)
        again = Node(run)
        assert again.images.adopt() == "ACTIVE" and is_mounted(run / "layers" / spec.modules.hex)
        again.stop()
        assert_clean(again, run, mounts, loops)

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_what_is_wrong_with_them_is_told_and_tried_again(
    tmp_path: Path, app: Path, tree: Path
) -> None:
    other = tree_of(tmp_path, "6.1.0-another")
    key = Ed25519PrivateKey.generate()

    def signed(spec: ImageSpec) -> ImageSpec:
        return dataclasses.replace(
            spec, signature=base64.b64encode(key.sign(spec.manifest.encode())).decode()
        )

    def down(url: str, offset: int) -> Body:
        if url.endswith("/modules.squashfs"):
            raise Unreachable(f"cannot reach {url}: connection refused")
        return open_file(url, offset)

    def body(run: Path) -> None:
        node, mounts, loops = Node(run), set(mount_points()), used_loops()
        good = asking(app, tree)
        assert good.modules is not None
        forged = dataclasses.replace(
            good, modules=dataclasses.replace(good.modules, digest=f"blake2b:{'a' * 64}")
        )
        node.key = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        for spec, event, why in (
            (asking(app, None), "image.error", "the head gives none for the boot set"),
            (
                asking(app, other),
                "image.error",
                f"those of 6.1.0-another, and the kernel that runs is {RELEASE}",
            ),
            (forged, "image.digest-mismatch", "expected blake2b:aaaa"),
            (good, "image.unsigned", "its signature is missing"),
        ):
            given = spec.modules if spec is good or spec.modules is None else signed(spec.modules)
            assert node.run(signed(dataclasses.replace(spec, modules=given))) == "ERROR"
            told = node.last(event)[1]
            assert (
                told.startswith("cannot give image app the kernel's modules: ") and why in told
            ), told
            assert event == "image.unsigned" or "layercake boot build" in told
            node.images.clear()
        node.key, node.open_url = b"", down
        assert (
            node.run(good) == "ERROR"
            and "cannot give image app the kernel's modules" in node.last("image.error")[1]
        )
        node.open_url = open_file
        node.skew += 60
        assert node.images.retry() == "ACTIVE", "it is tried again like another fetch"
        assert "microcode" in tried(node)
        assert_clean(node, run, mounts, loops)

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("how", ["lib", "lib/modules", "lib/firmware", "above"])
def test_links_in_an_image_lead_nowhere_on_the_node(
    tmp_path: Path, tree: Path, how: str, inside: bool
) -> None:
    """The attack: an image whose /lib/modules is a link to a directory of the node, which the mount
    would hide. The link means a directory of the image, `inside` there is one."""
    outside = tmp_path / "outside"
    (outside / RELEASE).mkdir(parents=True)

    def hostile(root: Path) -> None:
        link = root / ("lib/modules" if how == "above" else how)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to("../" * 20 + str(outside).lstrip("/") if how == "above" else outside)
        if inside:
            (root / str(outside).lstrip("/")).mkdir(parents=True)

    file = image(tmp_path / "hostile", hostile)

    def body(run: Path) -> None:
        node, mounts, loops = Node(run), set(mount_points()), used_loops()
        state = node.run(asking(file, tree))
        assert not [point for point in mount_points() if point.startswith(str(outside))]
        assert [p.relative_to(outside) for p in outside.rglob("*")] == [Path(RELEASE)], (
            "nothing was made there"
        )
        if inside:
            assert state == "ACTIVE" and "kernel/made_up.ko:" in tried(node), repr(node.events)
        else:
            assert state == "ERROR" and "No such file or directory" in node.last("image.error")[1]
        assert_clean(node, run, mounts, loops)

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_they_are_staged_with_the_image(tmp_path: Path, app: Path, tree: Path) -> None:
    def body(run: Path) -> None:
        node, spec, loops = Node(run), asking(app, tree), used_loops()
        assert spec.modules is not None
        layer = run / "layers" / spec.modules.hex
        node.images.stage([spec])
        eventually(lambda: "image.staged" in node.kinds())
        assert is_mounted(layer)
        node.images.stage([])
        eventually(lambda: not layer.exists() and used_loops() == loops)

    run_as_agent(tmp_path / "run", body)


def test_the_kernel_is_told_where_the_firmware_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks into no container, whoever has loaded the module. On a machine that is not minOS its
    settings are not touched."""
    search, top = tmp_path / "path", tmp_path / "layer"
    (top / "modules" / RELEASE).mkdir(parents=True)
    (top / "firmware").mkdir()
    monkeypatch.setattr(kernel, "SEARCH", search)
    spec = dataclasses.replace(asking(Path(__file__), Path(__file__)))
    with monkeypatch.context() as patched:
        patched.setattr(modules, "DIRECTORY", tmp_path)
        assert [b.target for b in kernel.binds(spec, lambda content: top, RELEASE)] == [
            f"/lib/modules/{RELEASE}"
        ]
        assert not search.exists(), "there is none: the image's own stays in sight"
        (top / "firmware/x.bin").write_text("x")
        assert [b.target for b in kernel.binds(spec, lambda content: top, RELEASE)][1:] == [
            "/lib/firmware"
        ]
        assert search.read_text() == str(top / "firmware")
        patched.setattr(kernel, "SEARCH", tmp_path / "no/such/place")
        with pytest.raises(OperationFailed, match="the kernel does not take"):
            kernel.binds(spec, lambda content: top, RELEASE)
    search.unlink()
    kernel.binds(spec, lambda content: top, RELEASE)
    assert not search.exists()
    asks_not = dataclasses.replace(spec, container=ContainerSpec())
    assert kernel.binds(asks_not, lambda content: pytest.fail("not asked for"), RELEASE) == []


def test_a_container_beside_the_image_set_is_told_that_it_gets_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"kernel_modules.*only images of the node's set"):
        Node(tmp_path).images.containers.create(
            {"name": "x", "mount": {"kind": "tmpfs"}, "kernel_modules": True}
        )


def test_the_wire_form() -> None:
    spec = asking(Path(__file__), Path(__file__))
    wire = spec.to_wire()
    again = parse_image(wire)
    assert again == spec and again.modules == spec.modules and len(again.contents) == 2
    assert parse_image({**wire, "container": {}}).contents == (
        parse_image({**wire, "container": {}}),
    ), "it did not ask"
    assert "modules" not in spec_of(Path(__file__), "app").to_wire()
    hostile: tuple[object, ...] = (
        [1],
        {"digest": "x"},
        {**wire["modules"], "url": "ftp://x/y"},
        {**wire["modules"], "size": -1},
    )
    for given in hostile:
        with pytest.raises(InputError):
            parse_image({**wire, "modules": given})
    more = {"container": {"kernel_modules": True}, "modules": wire["modules"]}
    nested = parse_image({**wire, "modules": {**wire["modules"], **more}})
    assert nested == spec and nested.modules is not None and nested.modules.modules is None
