"""An image that was being fetched from a head whose machine is gone comes whole from the next
one."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from smallimages import build_plain_image

from imageapi.node.attach.fetch import Body, fetch
from imageapi.server import ImageServer
from imageapi.spec.container import ContainerSpec
from imageapi.spec.image import ImageSpec
from imageapi.store.store import Image, ImageStore
from imageapi.store.tickets import Tickets
from layercake.kraken.errors import Unreachable
from layercake.node.wiring import opener
from minos.agent.head_link.known_heads import KnownHeads
from minos.agent.state import Config

GONE, NEXT = "127.0.0.1", "127.0.0.2"


class Gone:
    """A head that ends in the middle of an answer, after so many bytes, and is not there again."""

    def __init__(self, data: bytes, sent: int) -> None:
        self._data, self._sent = data, sent
        self._listener = socket.create_server((GONE, 0))
        self.port: int = self._listener.getsockname()[1]
        self.asked = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        peer, _ = self._listener.accept()
        self._listener.close()
        with peer:
            self.asked += len(peer.recv(65536)) > 0
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self._data)}\r\n\r\n"
            peer.sendall(head.encode() + self._data[: self._sent])


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store")


@pytest.fixture
def image(store: ImageStore, tmp_path: Path) -> Image:
    return store.add(build_plain_image(tmp_path / "one.squashfs", "one"), "app", {})


@pytest.fixture
def gone(store: ImageStore, image: Image) -> Gone:
    return Gone(store.path(image.digest).read_bytes(), 123_456)


@pytest.fixture
def served(store: ImageStore, gone: Gone) -> Iterator[None]:
    """The next head's image service, with the same tickets."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = ImageServer(store.directory, [NEXT], gone.port)
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    yield
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def known(run: Path, *others: str) -> KnownHeads:
    def place(host: str) -> tuple[str, str]:
        return f"https://{host}:8443", f"{host}:31415"

    url, sync = place(GONE)
    heads = tuple(map(place, others))
    return KnownHeads(Config("", "", "", url, sync, "", run, run, "boot", "1", other_heads=heads))


def spec_of(store: ImageStore, image: Image, port: int) -> ImageSpec:
    content = image.digest.partition(":")[2]
    ticket = Tickets(store.directory).issue(content, "n0")
    url = f"http://{GONE}:{port}/images/{content}?{ticket}"
    return ImageSpec("app", image.digest, image.size, url, ContainerSpec())


@pytest.mark.usefixtures("served")
def test_it_goes_on_where_it_stopped(
    tmp_path: Path, store: ImageStore, image: Image, gone: Gone
) -> None:
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    offsets: list[tuple[int, int]] = []
    open_image = opener(known(tmp_path, NEXT))

    def opened(url: str, offset: int) -> Body:
        body = open_image(url, offset)
        offsets.append((offset, body.offset))
        return body

    found = fetch(spec_of(store, image, gone.port), blobs, opened)
    assert found.read_bytes() == store.path(image.digest).read_bytes()
    assert gone.asked == 1 and offsets == [(0, 0), (123_456, 123_456)]


@pytest.mark.usefixtures("served")
def test_a_node_that_knows_no_other_head_waits_for_its_own(
    tmp_path: Path, store: ImageStore, image: Image, gone: Gone
) -> None:
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    with pytest.raises(Unreachable, match=f"cannot reach {GONE}"):
        fetch(spec_of(store, image, gone.port), blobs, opener(known(tmp_path)))
    assert next(blobs.iterdir()).stat().st_size == 123_456, "what has come is kept"
