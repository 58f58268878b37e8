"""The head's store, the file service, and how a node fetches from it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest

from imageapi.node.attach import fetch as attach
from imageapi.node.interrupt import Interrupted
from imageapi.server import ImageServer
from imageapi.service import ImageService
from imageapi.settings import ImageSettings
from imageapi.spec.container import ContainerSpec
from imageapi.spec.image import ImageSpec
from imageapi.store.store import Image, ImageStore, container_spec
from imageapi.store.tickets import HALF_S, Tickets
from layercake.kraken.errors import InputError, NotFound, OperationFailed, Refused, Unreachable
from layercake.moduleapi.service import FakeLink, MutationRequest
from layercake.node.wiring import open_url
from tests.support.site import site


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store", clock=lambda: 100.0)


def test_an_image_is_its_content(store: ImageStore, one: Path) -> None:
    image = store.add(one, "app-2.0:1", {"systemd": True})
    assert (
        image.digest == "blake2b:" + hashlib.blake2b(one.read_bytes(), digest_size=32).hexdigest()
    )
    assert (image.size, image.created, image.container.systemd) == (one.stat().st_size, 100.0, True)
    assert store.path(image.digest).read_bytes() == one.read_bytes()
    assert store.get("app-2.0:1") == image and store.list() == [image]
    assert Image.from_record(json.loads(json.dumps(image.to_record()))) == image
    assert ImageStore(store.directory).list() == [image], (
        "a store that is opened again knows its images"
    )
    store.verify("app-2.0:1")


def test_a_moved_name_keeps_its_history_and_the_old_file(
    store: ImageStore, one: Path, two: Path
) -> None:
    first, second = store.add(one, "app", {}), store.add(two, "app", {})
    assert [v.digest for v in second.history] == [first.digest]
    assert store.path(first.digest).exists(), "nodes may still run it"
    assert store.prune({first.digest}) == []
    assert store.prune(()) == [first.digest]
    assert not store.path(first.digest).exists() and store.path(second.digest).exists()


def test_removal(store: ImageStore, one: Path) -> None:
    image = store.add(one, "a", {})
    store.add(one, "b", {})
    store.remove("a")
    assert store.path(image.digest).exists(), "b has the same content"
    store.remove("b")
    assert not store.path(image.digest).exists()
    for name in ("a", "b"):
        with pytest.raises(NotFound, match="not in the store"):
            store.remove(name)


def test_a_name_goes_and_what_nodes_run_of_it_stays(store: ImageStore, one: Path) -> None:
    image = store.add(one, "a", {})
    store.remove("a", in_use={image.digest})
    assert store.list() == [] and store.path(image.digest).exists()
    assert store.prune(()) == [image.digest]


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".hidden", "-x", "a:b:c", "x" * 101, "a\n"])
def test_hostile_names_are_refused(store: ImageStore, one: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot add image"):
        store.add(one, name, {})


def test_what_is_no_squashfs_is_refused_and_leaves_nothing(
    store: ImageStore, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(b"PK\3\4")
    for path in (tmp_path / "x", tmp_path / "missing", tmp_path):
        with pytest.raises(InputError, match="cannot add"):
            store.add(path, "x", {})
    assert list(store.directory.iterdir()) == []


def test_what_is_taken_in_is_the_file_that_was_checked(
    store: ImageStore, one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file may come into its place at any time; here it does after the check."""
    content = one.read_bytes()
    path = tmp_path / "own.squashfs"
    path.write_bytes(content)
    make = hashlib.blake2b

    def swapped(*data: bytes, digest_size: int) -> Any:
        other = path.with_name("other")
        other.write_bytes(b"anything")
        other.replace(path)
        return make(*data, digest_size=digest_size)

    monkeypatch.setattr("imageapi.store.content.hashlib.blake2b", swapped)
    image = store.add(path, "app", {})
    monkeypatch.undo()
    assert path.read_bytes() == b"anything"
    assert store.path(image.digest).read_bytes() == content


def test_what_is_no_file_is_refused(store: ImageStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "store"):
        store.directory.mkdir(exist_ok=True)
        with pytest.raises(InputError, match="it is no file"):
            store.add(tmp_path / name, "app", {})


def test_a_damaged_file_is_noticed(store: ImageStore, one: Path) -> None:
    image = store.add(one, "app", {})
    with store.path(image.digest).open("r+b") as file:
        file.seek(500)
        file.write(b"xxxx")
    with pytest.raises(OperationFailed, match="changed or damaged"):
        store.verify("app")


def test_container_fields_are_checked() -> None:
    assert container_spec({"systemd": True}) == ContainerSpec(True)
    with pytest.raises(InputError, match="privileged"):
        container_spec({"privileged": True})


async def test_the_service_serves_images_and_nothing_else(tmp_path: Path, one: Path) -> None:
    store, service, link = ImageStore(tmp_path / "images"), ImageService(), FakeLink()
    image = store.add(one, "app", {})
    (tmp_path / "secret.squashfs").write_text("secret")
    await service.start(
        link, site(address="127.0.0.1", data_dir=str(tmp_path)), ImageSettings(http_port=0)
    )
    assert link.healths == ["running"] and service.server
    base = f"http://127.0.0.1:{service.server.port}"
    hexdigest, data = image.digest.partition(":")[2], one.read_bytes()
    tickets, nothing = Tickets(store.directory), "0" * 64
    for name in ("0.2.0-ab", "old"):
        (tmp_path / "boot" / name).mkdir(parents=True)
        (tmp_path / "boot" / name / "minos.img").write_text("secret")
    (tmp_path / "boot/0.2.0-ab/modules.squashfs").write_bytes(b"modules")
    url = f"{base}/images/{hexdigest}?{tickets.issue(hexdigest, 'n0')}"
    try:
        async with aiohttp.ClientSession() as client:
            async with client.get(url) as answer:
                assert await answer.read() == data
            async with client.head(url) as answer:
                assert answer.status == 200 and int(answer.headers["Content-Length"]) == len(data)
            async with client.get(url, headers={"Range": "bytes=1000-1999"}) as answer:
                assert answer.status == 206 and await answer.read() == data[1000:2000]
            for content, good in (("boot/0.2.0-ab", True), ("boot/old", False), (hexdigest, False)):
                async with client.get(
                    f"{base}/images/boot/0.2.0-ab?{tickets.issue(content, 'n0')}"
                ) as answer:
                    assert (answer.status, await answer.read() == b"modules") == (
                        200 if good else 403,
                        good,
                    ), content
            for path in (
                "/",
                "/images/boot/",
                "/images/boot/0.2.0-ab/minos.img",
                "/images/boot/..",
                "/images/boot/%2e%2e",
                f"/images/boot/old?{tickets.issue('boot/old', 'n0')}",
                "/images/",
                "/images/../secret",
                "/images/%2e%2e%2fsecret",
                "/images/index.json",
                "/index.json",
                "/images/tickets.key",
                f"/images/{hexdigest}.squashfs",
                f"/images/{nothing}?{tickets.issue(nothing, 'n0')}",
            ):
                async with client.get(base + path) as answer:
                    assert answer.status == 404, path
        with pytest.raises(InputError, match="nodes do that"):
            await service.mutate(MutationRequest(1, "n", "image-start", 1, 5.0, {}))
    finally:
        await service.stop()


async def test_nobody_gets_an_image_by_its_digest_alone(tmp_path: Path, one: Path) -> None:
    """Any host on the boot network could fetch every image that it knew a digest of. Now the head
    says who may, for how long."""
    now = [1_000_000.0]
    store, server = ImageStore(tmp_path), ImageServer(tmp_path, ["127.0.0.1"], 0)
    digest = store.add(one, "app", {}).digest.partition(":")[2]
    other = "a" * 64
    old = Tickets(tmp_path, lambda: now[0]).issue(digest, "n0")
    good = dict(pair.split("=") for pair in Tickets(tmp_path).issue(digest, "n0").split("&"))
    foreign = dict(
        pair.split("=") for pair in Tickets(tmp_path / "elsewhere").issue(digest, "n0").split("&")
    )
    later, shorter = str(int(good["until"]) + 1), good["ticket"][:-1]
    bad = [
        "",
        old,
        urlencode(foreign),
        urlencode({**good, "node": "n1"}),
        urlencode({**good, "until": later}),
        urlencode({**good, "ticket": shorter}),
        urlencode({**good, "ticket": "\u00e4"}),
        "ticket=%ff&until=%b2&node=%00",
        Tickets(tmp_path).issue(other, "n0"),
    ]
    await server.start()
    try:
        async with aiohttp.ClientSession() as client:
            for query in bad:
                async with client.get(
                    f"http://127.0.0.1:{server.port}/images/{digest}?{query}"
                ) as answer:
                    assert (answer.status, b"hsqs" in await answer.read()) == (403, False), query
            async with client.get(
                f"http://127.0.0.1:{server.port}/images/{digest}?{urlencode(good)}"
            ) as answer:
                assert answer.status == 200 and await answer.read() == one.read_bytes()
    finally:
        await server.stop()


def test_a_ticket_stays_the_same_for_hours_and_its_key_is_for_the_head_alone(
    tmp_path: Path,
) -> None:
    now = [3 * HALF_S + 5.0]
    tickets = Tickets(tmp_path, lambda: now[0])
    first = tickets.issue("c" * 64, "n0")
    now[0] += HALF_S - 10.0
    assert tickets.issue("c" * 64, "n0") == first, "a document does not change for it"
    query = dict(pair.split("=") for pair in first.split("&"))
    assert Tickets(tmp_path, lambda: now[0]).check("c" * 64, query) == "n0", (
        "another process has the same key"
    )
    now[0] += HALF_S + 10.0
    with pytest.raises(Refused, match="too old"):
        tickets.check("c" * 64, query)
    assert [(p.name, p.stat().st_mode & 0o777) for p in tmp_path.iterdir()] == [
        ("tickets.key", 0o600)
    ]


async def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    first, second = ImageService(), ImageService()
    where = site(address="127.0.0.1", data_dir=str(tmp_path))
    await first.start(FakeLink(), where, ImageSettings(http_port=0))
    assert first.server
    with pytest.raises(OperationFailed, match="cannot serve images"):
        await second.start(FakeLink(), where, ImageSettings(http_port=first.server.port))
    await second.stop()
    await first.stop()


class Flaky:
    """A Body of some bytes that breaks off after `upto`."""

    def __init__(self, data: bytes, offset: int, upto: int, ranges: bool = True) -> None:
        self.offset = offset if ranges else 0
        self.total: int | None = len(data)
        self._data, self._at, self._upto = data, self.offset, upto

    def read(self, size: int) -> bytes:
        if self._at >= self._upto:
            if self._upto >= len(self._data):
                return b""
            raise ConnectionResetError("broken")
        part = self._data[self._at : min(self._at + size, self._upto)]
        self._at += len(part)
        return part

    def close(self) -> None:
        pass


def image_of(data: bytes, size: int | None = None) -> ImageSpec:
    digest = hashlib.blake2b(data, digest_size=32).hexdigest()
    return ImageSpec(
        "app",
        f"blake2b:{digest}",
        len(data) if size is None else size,
        "http://h/x",
        ContainerSpec(),
    )


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_transfer_goes_on_where_it_broke(tmp_path: Path, ranges: bool) -> None:
    data, offsets = os.urandom(700_000), []

    def open_flaky(url: str, offset: int) -> Flaky:
        offsets.append(offset)
        return Flaky(data, offset, 300_000 if len(offsets) == 1 else len(data), ranges)

    found = attach.fetch(image_of(data), tmp_path, open_flaky)
    assert found.read_bytes() == data and offsets == [0, 300_000]
    assert attach.fetch(image_of(data), tmp_path, open_flaky) == found and len(offsets) == 2, (
        "what is there is not fetched again"
    )


def test_other_content_is_refused_and_removed(tmp_path: Path) -> None:
    wanted, other = image_of(b"right" * 100), b"wrong" * 100
    with pytest.raises(attach.DigestMismatch, match="expected blake2b"):
        attach.fetch(wanted, tmp_path, lambda url, offset: Flaky(other, offset, len(other)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("served", [b"x" * 5000, b"x" * 10])
def test_another_length_is_refused(tmp_path: Path, served: bytes) -> None:
    with pytest.raises(attach.DigestMismatch):
        attach.fetch(
            image_of(b"y" * 1000), tmp_path, lambda url, offset: Flaky(served, offset, len(served))
        )


def test_an_image_that_does_not_fit_is_refused_before_it_is_fetched(tmp_path: Path) -> None:
    opened: list[str] = []

    def open_url(url: str, offset: int) -> Flaky:
        opened.append(url)
        return Flaky(b"", 0, 0)

    with pytest.raises(OperationFailed, match="MiB of memory"):
        attach.fetch(image_of(b"", size=1 << 60), tmp_path, open_url)
    assert not opened


def test_fetching_can_be_called_off(tmp_path: Path) -> None:
    data = os.urandom(600_000)
    with pytest.raises(Interrupted):
        attach.fetch(
            image_of(data),
            tmp_path,
            lambda url, offset: Flaky(data, offset, len(data)),
            lambda: True,
        )


def test_a_server_that_stays_away_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)

    def nobody(url: str, offset: int) -> Flaky:
        raise Unreachable("nobody there")

    with pytest.raises(Unreachable, match="cannot fetch image app: nobody there"):
        attach.fetch(image_of(b"x"), tmp_path, nobody)
    assert waits == [0.2, 0.4, 0.8]


@pytest.fixture
def server(tmp_path: Path, one: Path) -> Iterator[str]:
    """The file service on a thread, with one image; yields the image's address."""
    store = ImageStore(tmp_path / "store")
    image = store.add(one, "app", {})
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    files = ImageServer(store.directory, ["127.0.0.1"], 0)
    asyncio.run_coroutine_threadsafe(files.start(), loop).result(10)
    content = image.digest.partition(":")[2]
    yield f"http://127.0.0.1:{files.port}/images/{content}?{Tickets(store.directory).issue(content, 'n0')}"
    asyncio.run_coroutine_threadsafe(files.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def test_a_node_fetches_from_the_service(tmp_path: Path, one: Path, server: str) -> None:
    data = one.read_bytes()
    digest = hashlib.blake2b(data, digest_size=32).hexdigest()
    spec = ImageSpec("app", f"blake2b:{digest}", len(data), server, ContainerSpec())
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    (blobs / f"{digest}.partial").write_bytes(data[:123_456])
    assert attach.fetch(spec, blobs, open_url).read_bytes() == data
