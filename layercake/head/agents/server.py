"""What nodes ask over TLS: to join, for their desired state, and to hand in events and answers."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import functools
import itertools
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web
from msgspec.structs import replace

import minos.events
from imageapi.spec.objects import secrets_of
from imageapi.store.store import ImageStore
from layercake.base.secrets import OF_IMAGES, SecretRef, Vault
from layercake.base.text import parse_json, whole_number
from layercake.fleet import events
from layercake.fleet.desired import Desire
from layercake.fleet.store import Record, Session, Store, Trust
from layercake.fleet.table import Table
from layercake.head.agents.attest import AttestApi
from layercake.head.agents.document import Address, desired
from layercake.head.agents.drivers import DriverApi
from layercake.head.agents.heard import set_name
from layercake.head.agents.joining import Claim, Joining, NoJoin
from layercake.head.agents.machines import MachineApi
from layercake.head.agents.sync import Sync
from layercake.head.agents.told import Told
from layercake.head.boots import BootSets
from layercake.head.disks.room import DiskRoom
from layercake.head.files.room import Room, has_secrets
from layercake.head.machines.keeper import Machines
from layercake.head.pki import Authority, name_of
from layercake.head.settings import Settings
from layercake.head.thermal.keeper import ThermalKeeper
from layercake.head.tpm.keeper import Tpms
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import (
    InputError,
    LayercakeError,
    OperationFailed,
    Refused,
    Unreachable,
    WireError,
)
from layercake.kraken.wire import check_bearer, node_text, peek_bearer
from layercake.moduleapi.quick import Asked, Quick
from layercake.moduleapi.web import body_of, known, shown
from minos.build.sets import MODULES

log = logging.getLogger("layercake.nodes")
_MAX_BODY = 4 << 20
_MAX_CLAIM = 16384
_CLAIM = ("node", "token", "boot_id", "mac", "version")
NOT_WHILE_HELD = ("disks", "uinit")
"""What a node is not told of while it is being released (minos.disks, minos.tasks)."""
WEIGHT = 5.0
"""What a request of a node counts at the door: twenty a second are a lot for it."""
DESIRED, EVENTS = "/node/v1/desired", "/node/v1/events"
"""What nodes ask most."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class NodeApi:
    """The /node/v1 routes, and the requests that are waiting for a node's answer."""

    def __init__(
        self,
        store: Store,
        desire: Desire,
        joining: Joining,
        sync: Sync,
        settings: Settings,
        images: ImageStore,
        serves: Callable[[str], str],
        address: Address,
        authority: Authority,
        table: Table,
        boots: BootSets,
        vault: Vault,
        files: Room,
        machines: Machines,
        disks: DiskRoom,
        tpms: Tpms,
        thermal: ThermalKeeper,
    ) -> None:
        self._tpms, self._attest = tpms, AttestApi(joining, tpms, self._claimed)
        self._files, self._disks = files, disks
        self._vault = vault
        self._boots = boots
        self._drivers = DriverApi(self._authenticate, boots, enabled=settings.more_drivers)
        self._machines = MachineApi(self._authenticate, machines)
        self._table = table
        self._serves, self._address = serves, address
        self._store = store
        self._desire = desire
        self._joining = joining
        self._sync = sync
        self._settings = settings
        self._images = images
        self._authority = authority
        self.told = Told(
            store,
            {
                minos.events.FILES: files.heard,
                minos.events.DISKS: disks.heard,
                minos.events.THERMAL: thermal.heard,
            },
        )
        self._numbers = itertools.count(1)
        self._requests: dict[str, dict[int, dict[str, Any]]] = {}
        self._answers: dict[int, asyncio.Future[Any]] = {}

    def routes(self) -> list[web.RouteDef]:
        """The routes, each answering errors as JSON."""
        return [
            web.post("/node/v1/join", _guarded(self._join)),
            web.post("/node/v1/attest", _guarded(self._attest.attest)),
            web.get(DESIRED, _guarded(self._desired)),
            web.get("/node/v1/trust", _guarded(self._trust)),
            web.get("/node/v1/secrets/{name}", _guarded(self._secret)),
            web.get("/node/v1/disk-key/{layout}", _guarded(self._disk_key)),
            web.get("/node/v1/files", _guarded(self._of_node)),
            web.get("/node/v1/agent/{name}", _guarded(self._agent)),
            web.post("/node/v1/drivers", _guarded(self._drivers.wanted)),
            web.get("/node/v1/modules/{name}", _guarded(self._drivers.module)),
            web.get("/node/v1/firmware/{path:.+}", _guarded(self._drivers.firmware)),
            web.post("/node/v1/survey", _guarded(self._machines.survey)),
            web.post("/node/v1/machine", _guarded(self._machines.stranger)),
            web.post(EVENTS, _guarded(self._events)),
            web.post("/node/v1/answers/{id}", _guarded(self._answer)),
        ]

    async def ask(self, record: Record, request: dict[str, Any], timeout: float = 15.0) -> Any:
        """Sends a request to a node's agent and waits for its answer. Raises Unreachable if none
        comes in `timeout` seconds."""
        if record.value("run") != "SYNC":
            hint = f"see `layercake node explain {record.name}`"
            raise Unreachable(f"cannot ask {record.name}: its agent is not in sync", hint=hint)
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        self._requests.setdefault(record.node.id, {})[number] = request
        record.cfg_revision += 1
        self._store.mark(record)
        self._sync.push(record)
        try:
            async with asyncio.timeout(timeout):
                answer = await future
        except TimeoutError:
            raise Unreachable(f"cannot ask {record.name}: no answer in {timeout:.0f} s") from None
        finally:
            self._answers.pop(number, None)
            self._requests.get(record.node.id, {}).pop(number, None)
        if not answer.get("ok"):
            raise OperationFailed(f"{record.name} says: {str(answer.get('error', 'no'))[:500]}")
        return answer

    async def _join(self, request: web.Request) -> web.Response:
        body = await _body(request, _MAX_CLAIM)
        record, said = self._claimed(body, request.remote or "")
        boot, agent = (
            set_name(body.get(k)) for k in ("boot", "agent")
        )  # an older agent says nothing of them
        if (first := await self._attest.before(record, said, body)) is not None:
            return first
        async with self._desire.draft(revises=False) as draft:
            session = dataclasses.replace(
                self._joining.claim(record, said),
                mutual=body.get("mutual") is True,
                quoted=self._tpms.spend(record, said.boot_id),
            )
            draft.after(self._joining.spend, record)
            draft.after(self._sync.forget, record)
            draft.change(record, partial(_begin_session, session, boot, agent))
            facts = {"boot_id": session.boot_id, "mac": said.mac, "version": body["version"]}
            draft.event(record, events.NODE_JOINED, f"joined from {request.remote}", data=facts)
            draft.post(
                record, Discovered({**self._table.alive, "run": "INIT"}, "the node has joined")
            )
        known(request, record.node.id, WEIGHT)
        timers = self._settings.sync
        return web.json_response(
            {
                "session": session.number,
                "key": base64.b64encode(session.key).decode(),
                "epoch": self._store.epoch,
                "layout": record.planner.layout.to_wire(),
                "hello_s": timers.hello_s,
                "dead_s": timers.dead_s,
                "sync": f"{self._serves(record.node.id)}:{timers.port}",
                "desired": self._document(record),
                "tls": self._authority.issue(record.node.id, session.number),
                "certificate": 1,
                "mutual": session.mutual,
                "mutations": [m.to_wire() for m in record.planner.mutations],
                "traits": record.planner.traits,
                "image_key": self._images.signer.public,
            }
        )

    def _claimed(self, body: Any, address: str) -> tuple[Record, Claim]:
        """The node that somebody claims to be, and the claim. Raises Refused."""
        claim = {k: body.get(k) if isinstance(body, dict) else None for k in _CLAIM}
        if not all(isinstance(v, str) and len(v) <= 200 for v in claim.values()):
            raise Refused("cannot join: the claim is not well-formed")
        record = self._store.find(str(claim["node"]))
        if record is None:
            self._store.event(
                None,
                events.JOIN_REFUSED,
                f"a join from {address} was refused: {NoJoin.NO_NODE.value}",
                data={"address": address},
            )
            raise Refused(f"cannot join: {NoJoin.NO_NODE.value}")
        return record, Claim(str(claim["token"]), str(claim["boot_id"]), str(claim["mac"]), address)

    def _document(self, record: Record) -> dict[str, Any]:
        told = self._table.told_to(record.node)
        if record.held is not None:  # what is erased next is not mounted, and no task is begun
            told = {word: its for word, its in told.items() if word not in NOT_WHILE_HELD}
        return {
            **told,
            **self._files.document(record),
            **self._disks.document(record, self._address),
            **desired(
                record,
                self._address,
                self._requests.get(record.node.id, {}),
                self._images.attachment,
                self._boots.order(record.boots),
                {"authorities": self._authority.mark, "certificate": record.trust.certificate},
                self._images.signature,
                partial(self._modules, record),
            ),
        }

    def _modules(self, record: Record) -> dict[str, Any] | None:
        """The modules of the kernel that a node has booted; they lie where its images do."""
        name = record.boots.runs
        found = self._boots.part(name, MODULES) if name else None
        return (
            None
            if found is None
            else {**found, "url": self._address(f"boot/{name}", record.node.id)}
        )

    def _authenticate(self, request: web.Request) -> Record:
        record = self._bearer(request.headers.get("Authorization", ""), request.transport)
        if record is None:
            raise web.HTTPUnauthorized(
                text=json.dumps({"error": "cannot serve this: not the session of a joined node"})
            )
        known(request, record.node.id, WEIGHT)
        return record

    def _bearer(self, header: str, transport: asyncio.BaseTransport | None) -> Record | None:
        """The node whose session somebody has a right to speak for by this header and the
        certificate of the connection."""
        try:
            node, number = peek_bearer(header)
            record = self._store.find(node_text(node))
            if (
                record is not None
                and record.session is not None
                and record.session.number == number
            ):
                _genuine(header, record.session.key)
                if not record.session.mutual or name_of(record.node.id, number) in shown(transport):
                    return record
        except WireError as error:
            log.debug("an unusable bearer: %s", error)
        return None

    async def _desired(self, request: web.Request) -> web.Response:
        return _json(self._fetched(self._authenticate(request)))

    def _fetched(self, record: Record) -> dict[str, Any]:
        self._sync.coming.here(record.node.id, record.cfg_revision)
        return self._document(record)

    async def _trust(self, request: web.Request) -> web.Response:
        """The authorities that the node shall trust, and its next certificate."""
        record = self._authenticate(request)
        return web.json_response(
            {
                "authorities": self._authority.trusted.read_text(),
                "certificate": record.trust.certificate,
                "tls": self._authority.issue(
                    record.node.id, record.session.number if record.session else 0
                ),
            },
            headers={"Cache-Control": "no-store"},
        )

    async def _secret(self, request: web.Request) -> web.Response:
        """A key that an image of this node's needs, and no other: of the store's cluster, or of
        what its containers mount."""
        record, name = self._authenticate(request), request.match_info["name"]
        self._tpms.guard_secrets(record, f"secret {name}")
        document = self._document(record)
        images = (*document["images"], *document["stage"])
        if any(name in secrets_of(i["container"]) for i in images):
            return web.json_response(
                {"key": self._of_mount(record, name)}, headers={"Cache-Control": "no-store"}
            )
        if not any(i.get("attach", {}).get("secret") == name for i in images):
            self._store.event(
                record,
                events.SECRET_REFUSED,
                "asked for a secret that none of its images needs",
                data={"secret": name[:80]},
            )
            raise Refused("cannot hand out the secret: no image of this node needs it")
        return web.json_response(
            {"key": self._images.secret(name, record.name)}, headers={"Cache-Control": "no-store"}
        )

    def _of_mount(self, record: Record, name: str) -> str:
        """A secret in the directory of those that nodes get, base64."""
        try:
            return base64.b64encode(
                self._vault.open(SecretRef(file=f"{OF_IMAGES}/{name}")).reveal().encode()
            ).decode()
        except InputError as error:
            self._store.event(record, events.SECRET_UNREADABLE, str(error))
            raise OperationFailed(
                f"cannot hand out secret {name}: the head cannot read it"
            ) from None

    async def _disk_key(self, request: web.Request) -> web.Response:
        """The key of a layout of this node's disks that keeps what is on them."""
        record = self._authenticate(request)
        self._tpms.guard_secrets(record, "the key of its disks")
        key = await self._disks.key(record, request.match_info["layout"])
        return web.json_response({"key": key}, headers={"Cache-Control": "no-store"})

    async def _of_node(self, request: web.Request) -> web.Response:
        """The node's own files, with the secrets in them."""
        record = self._authenticate(request)
        manifest = await self._files.manifest(record)
        if has_secrets(manifest):
            self._tpms.guard_secrets(record, "its files, and there are secrets in them")
        found = await asyncio.to_thread(self._files.for_node, manifest)
        return web.Response(
            body=msgspec.json.encode({"mark": manifest.mark, "files": found}),
            content_type="application/json",
            headers={"Cache-Control": "no-store"},
        )

    async def _agent(self, request: web.Request) -> web.Response:
        """The agent that a node shall have, and no other."""
        record, name = self._authenticate(request), request.match_info["name"]
        if name != record.boots.agent:
            raise Refused(
                "cannot hand out the agent: it is not the one that is wanted of this node"
            )
        return web.Response(
            body=await asyncio.to_thread(self._boots.agent, name), content_type="application/zip"
        )

    async def _events(self, request: web.Request) -> web.Response:
        record = self._authenticate(request)
        taken, wait = self.told.take(record, await _body(request))
        if wait:
            await asyncio.sleep(wait)
        return _json({"taken": taken})

    def quick(self, asked: Asked) -> Quick | None:
        """What nodes ask most, out of hand: their desired state, and to take events. What is
        refused is left to the routes, which say why."""
        if asked.path != (DESIRED if asked.body is None else EVENTS):
            return None
        record = self._bearer(asked.authorization, asked.transport)
        if record is None:
            return None
        try:
            if asked.body is None:
                answer, wait = self._fetched(record), 0.0
            else:
                taken, wait = self.told.take(record, parse_json(asked.body))
                answer = {"taken": taken}
        except (LayercakeError, ValueError):
            return None
        return Quick(
            record.node.id,
            HTTPStatus.OK,
            msgspec.json.encode(answer),
            kind="application/json",
            weight=WEIGHT,
            wait=wait,
        )

    async def _answer(self, request: web.Request) -> web.Response:
        record = self._authenticate(request)
        body = await _body(request)
        if not isinstance(body, dict):
            raise OperationFailed("cannot take the answer: it is not an object")
        asked = whole_number(request.match_info["id"], 1 << 63)
        future = None if asked is None else self._answers.get(asked)
        if (
            future is not None
            and asked in self._requests.get(record.node.id, {})
            and not future.done()
        ):
            future.set_result(body)
        return _json({"taken": future is not None})


@functools.lru_cache(maxsize=16_384)
def _genuine(header: str, key: bytes) -> None:
    """Checks a credential, of which nodes show the same one each time. Raises WireError, each
    time."""
    check_bearer(header, key)


def _begin_session(session: Session, boot: str, agent: str, record: Record) -> None:
    """The node has been booted: what was heard of it before counts no more."""
    record.boots = replace(record.boots, runs=boot, agent_runs=agent)
    record.trust = Trust(at=session.joined)
    record.session, record.last_seen, record.address, record.acked, record.running = (
        session,
        None,
        None,
        0,
        (),
    )
    record.staged, record.stage_error, record.unhealthy, record.containers, record.api_port = (
        frozenset(),
        "",
        "",
        (),
        0,
    )
    record.interfaces = ()


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


async def _body(request: web.Request, most: int = _MAX_BODY) -> Any:
    data = await body_of(request, most)
    try:
        return parse_json(data)
    except ValueError:
        raise OperationFailed("cannot take the request: it is not JSON") from None


def _guarded(handler: Handler) -> Handler:
    async def wrapped(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except Refused as error:
            return web.json_response({"error": error.message, "hint": error.hint}, status=403)
        except LayercakeError as error:
            return web.json_response({"error": error.message, "hint": error.hint}, status=400)

    return wrapped
