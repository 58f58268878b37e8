"""HTTP for boot files: scripts, kernel, initramfs, and for UEFI HTTP Boot the boot program, or the
image of a volume.

FileResponse, that is sendfile, in threads (SendfileLoop): no file passes through Python, but those
of an image, which is put together. A node is known by its reserved address.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.typedefs import Handler

from layercake.base import tcp_listener
from layercake.base.tcp_listener import Limits
from layercake.kraken.errors import InputError, OperationFailed, Refused
from layercake.moduleapi.fast_response import FastResponse, PlainRequest
from layercake.moduleapi.web import WebServer, known
from pxe import cards, events
from pxe.nodes import Node, boot_set, mac_bytes
from pxe.notes import Note
from pxe.paths import arm64, grub, image, ipxe
from pxe.paths.boot_spec import HARDWARE, INITRD, KERNEL, spec_for
from pxe.paths.fat import Piece
from pxe.paths.ipxe import UEFI_PROGRAM
from pxe.state import BootState
from pxe.windows import Step, Window

log = logging.getLogger("pxe.http")
LIMITS = Limits(known=8, most=4096)
"""A node's firmware opens a connection at a time; its boot files may go out to a whole rack at
once."""
_AT_ONCE = 1 << 20
_BOOT = "/boot/"
_LOOK_S = 0.1
_LOOKS = 300
"""So often it is looked whether who asks is a node that was told by now; then he is refused, as a
stranger is."""


class HttpServer:
    """The web server on the boot network. `programs` are name -> path of boot programs, `signed`
    those of images (image.programs), `wall` gives seconds since the epoch."""

    def __init__(
        self,
        state: BootState,
        programs: Mapping[str, Path],
        signed: Mapping[str, Path] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._signed = signed or {}
        self._wall = wall
        boot_dir = state.settings.boot_dir
        self._files = {
            KERNEL: (boot_dir / KERNEL, Step.KERNEL),
            INITRD: (boot_dir / INITRD, Step.INITRD),
            HARDWARE: (boot_dir / HARDWARE, Step.HARDWARE),
            UEFI_PROGRAM: (programs[UEFI_PROGRAM], Step.NBP),
        }
        self._server: WebServer | None = None

    async def open(self) -> None:
        """Starts to listen. Raises OperationFailed."""
        settings = self._state.settings
        app = web.Application(middlewares=[self._counted, self._refusals], client_max_size=1024)
        for name in self._files:
            app.router.add_get(f"/boot/{name}", self._file)
        for name in (KERNEL, HARDWARE, INITRD):
            app.router.add_get(f"/boot/{{set}}/{name}", self._file)
        app.router.add_get(f"/boot/{{mac}}{image.SUFFIX}", self._boot_image)
        app.router.add_get("/boot/{mac}", self._boot_script)
        addresses = [own.address for own in settings.heads]
        server = self._server = WebServer(
            app, LIMITS.beside(addresses), quick=self._quick_counted, handler_cancellation=True
        )
        try:
            await server.open(*tcp_listener.bound_sockets(addresses, settings.http_port))
        except OSError as error:
            await self.close()
            raise OperationFailed(
                f"cannot listen for HTTP on {error.filename} port {settings.http_port}: "
                f"{error.strerror}",
                hint="the address must be this machine's, and the port free",
            ) from error

    async def close(self) -> None:
        """Stops to listen and ends what is running."""
        if self._server is not None:
            await self._server.close()
            self._server = None

    def _count(self, address: str, path: str, status: int) -> None:
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s of %s: %s", ascii(path[:200]), address, status)
        self._state.recorder.counters[f"http.{status // 100}xx"] += 1

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPException as answer:
            self._count(request.remote or "", request.path, answer.status)
            raise
        self._count(request.remote or "", request.path, response.status)
        return response

    def _quick_counted(self, asked: PlainRequest) -> FastResponse | None:
        answer = self._quick(asked)
        if answer is not None:
            self._count(asked.address, asked.path, int(answer.status))
        return answer

    @web.middleware
    async def _refusals(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """403 for who may not, 500 with one line of reason for a record that no script can be made
        of; never a traceback."""
        for _ in range(_LOOKS):
            if not self._state.may_come(request.remote or ""):
                break
            await asyncio.sleep(_LOOK_S)
        if isinstance(request.match_info.http_exception, web.HTTPNotFound):
            self._state.asks_other(request.remote or "", request.path, "HTTP")
        try:
            return await handler(request)
        except Refused as refusal:
            raise web.HTTPForbidden(text=f"{refusal.message}\n") from refusal
        except InputError as error:
            raise web.HTTPInternalServerError(text=f"{error.message}\n") from error

    def _booting(self, request: web.Request) -> tuple[Node, Window]:
        """The node that asks. Raises Refused."""
        node, window = self._state.booting(request.remote or "")
        known(request, node.id)
        return node, window

    def _asked_by(self, request: web.Request) -> tuple[Node, Window, bytes]:
        """The node that asks for what is its own, by which card. Raises Refused."""
        try:
            mac = mac_bytes(request.match_info["mac"])
        except InputError:
            self._state.asks_other(request.remote or "", request.path, "HTTP")
            raise web.HTTPNotFound(text="no such boot file\n") from None
        self._state.look_for_two(request.remote or "", mac)
        node, window = self._booting(request)
        if mac not in node.macs:
            raise Refused("cannot serve this script: it is another node's")
        return node, window, mac

    async def _boot_image(self, request: web.Request) -> web.StreamResponse:
        node, window, mac = self._asked_by(request)
        settings = self._state.settings
        spec = spec_for(node, mac, window.token, settings, self._wall())
        directory = settings.boot_dir / node.boot_set
        signed = arm64.in_image(directory) if arm64.takes(node) else self._signed
        if not signed:
            self._missing(node, str(directory / arm64.SHIM) if arm64.takes(node) else grub.SHIM)
        try:
            pieces, files = image.render(spec, signed, directory)
        except OSError as error:
            self._missing(node, str(error.filename))
        response = _BootImage(self._state, node, pieces, files)
        if request.method != "HEAD":
            self._state.hand_out(node, window, mac, "script")
            await response.send(request)
        return response

    def _script(self, node: Node, window: Window, mac: bytes) -> bytes:
        """The boot script, which is handed out by that. Raises InputError, and Refused."""
        settings = self._state.settings
        base = settings.http_base if node.subnet is None else node.subnet.place.http_base
        body = ipxe.render(spec_for(node, mac, window.token, settings, self._wall()), base).encode(
            "ascii"
        )
        self._state.hand_out(node, window, mac, "script")
        return body

    async def _boot_script(self, request: web.Request) -> web.StreamResponse:
        node, window, mac = self._asked_by(request)
        headers = {"Cache-Control": "no-store"}
        if request.method == "HEAD":
            return web.Response(content_type="text/plain", headers=headers)
        body = self._script(node, window, mac)
        started = self._state.clock()
        response = web.Response(body=body, content_type="text/plain", headers=headers)
        await response.prepare(request)
        await response.write_eof()
        self._state.ended(
            node, Step.SCRIPT, "boot script", len(body), self._state.clock() - started
        )
        return response

    def _quick(self, asked: PlainRequest) -> FastResponse | None:
        """The boot script for a node that may have it, out of hand; who may not is told by
        `_boot_script`."""
        state = self._state
        address = asked.address
        path = asked.path if asked.body is None else ""
        node = state.nodes.by_ip(address) if path.startswith(_BOOT) else None
        window = state.windows.armed(node.id, state.clock()) if node is not None else None
        if node is None or window is None:
            return None
        try:
            mac = mac_bytes(path.removeprefix(_BOOT))
            if mac not in node.macs:
                return None
            body = self._script(node, window, mac)
        except InputError:
            return None
        except Refused as refusal:
            state.look_for_two(address, mac)
            return FastResponse(node.id, HTTPStatus.FORBIDDEN, f"{refusal.message}\n".encode())
        state.look_for_two(address, mac)
        return FastResponse(
            node.id,
            HTTPStatus.OK,
            body,
            partial(state.ended, node, Step.SCRIPT, "boot script", len(body), 0.0),
        )

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        path, step = self._files[name]
        if chosen := request.match_info.get("set"):
            try:
                path = path.parent / boot_set(chosen) / name
            except InputError:
                raise web.HTTPNotFound(text="no such boot file\n") from None
        if self._state.visits(request.remote or "") and path.is_file():
            return web.FileResponse(path, chunk_size=1 << 20)
        node, window = self._booting(request)
        if step is not Step.NBP:
            self._state.windows.fetched(window)
        if name == KERNEL and (
            why := cards.trouble(path.parent, cards.pci_id(request.query.get("card", "")))
        ):
            window.doubt = why
            self._state.recorder.note(
                Note(node.id, events.NO_DRIVER, why, None, {"file": name}, name, 10.0)
            )
        if not path.is_file():
            self._missing(node, str(path))
        return _BootFile(self._state, node, step, path)

    def _missing(self, node: Node, path: str) -> NoReturn:
        name = Path(path).name
        text = f"{path} is not there: the node cannot boot"
        self._state.recorder.note(
            Note(node.id, events.FILE_MISSING, text, None, {"file": name}, name, 10.0)
        )
        raise web.HTTPNotFound(text="no such boot file\n")


class _BootFile(web.FileResponse):
    """A file whose transfer is recorded. FileResponse sends all of it within `prepare`, which the
    web server calls."""

    def __init__(self, state: BootState, node: Node, step: Step, path: Path) -> None:
        super().__init__(
            path, chunk_size=1 << 20, headers={"Content-Type": "application/octet-stream"}
        )
        self._boot = (state, node, step, path.name)

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Sends the file, or the part asked for, or for HEAD its headers."""
        if request.method == "HEAD":
            return await super().prepare(request)
        state, node, step, name = self._boot
        started = state.clock()
        state.began(node, step, name)
        try:
            writer = await super().prepare(request)
        except (ConnectionError, asyncio.CancelledError):
            text = f"the transfer of {name} broke off after {state.clock() - started:.2f} s"
            state.recorder.note(
                Note(node.id, events.TRANSFER_BROKEN, text, None, {"file": name}, name, 1.0)
            )
            raise
        if self.status in (200, 206):
            state.ended(node, step, name, self.content_length or 0, state.clock() - started)
        return writer


class _BootImage(web.StreamResponse):
    """A volume, put together as it is sent (pxe.paths.fat). Each of its files is a step of the boot
    when it has been sent."""

    def __init__(
        self,
        state: BootState,
        node: Node,
        pieces: tuple[Piece, ...],
        files: Mapping[str, bytes | Path],
    ) -> None:
        super().__init__(
            headers={"Content-Type": "application/vnd.efi-img", "Cache-Control": "no-store"}
        )
        self.content_length = sum(piece.size for piece in pieces)
        self._boot = (state, node, pieces, files)

    async def send(self, request: web.Request) -> None:
        """Sends all of it. Raises ConnectionError for a node that has gone."""
        state, node, pieces, files = self._boot
        await self.prepare(request)
        for piece in pieces:
            step = image.step_of(piece.name)
            name = Path(piece.name).name
            started = state.clock()
            try:
                if piece.name:
                    state.began(node, step, name)
                await self._send(piece, files.get(piece.name, piece.made), node)
            except (OSError, asyncio.CancelledError):
                text = f"the transfer of the boot image broke off in {name or 'its directory'}"
                state.recorder.note(
                    Note(node.id, events.TRANSFER_BROKEN, text, None, {"file": name}, name, 1.0)
                )
                raise
            if piece.name:
                state.ended(
                    node,
                    step,
                    "boot script" if step is Step.SCRIPT else name,
                    piece.size,
                    state.clock() - started,
                )
        await self.write_eof()

    async def _send(self, piece: Piece, content: bytes | Path, node: Node) -> None:
        if isinstance(content, bytes):
            await self.write(content)
            return
        left = piece.size
        with content.open("rb") as file:  # each read waits for the disk in a thread
            while left:
                data = await asyncio.to_thread(file.read, min(left, _AT_ONCE))
                if not data:
                    raise OSError(f"{content} has become shorter")
                await self.write(data)
                left -= len(data)
                self._boot[0].windows.moves(node.id, self._boot[0].clock())
