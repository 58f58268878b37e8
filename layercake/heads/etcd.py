"""A client of etcd's JSON gateway (etcd 3.4 and later, `/v3/...`): what the heads need of it.

Keys and values are bytes, in base64 on the wire. Each call has a deadline over all, and goes to the
next endpoint where one does not answer: a client that is tied to one member goes down with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from layercake.base.text import parse_json
from layercake.kraken.errors import OperationFailed
from layercake.moduleapi.tls_client import OutgoingConnections

CALL_S = 2.0
"""Seconds that one member has to answer; an election takes about one."""
WATCH_S = 60.0
"""After so long a watch is asked for anew: one at a member that was cut off says nothing."""
ANSWER_BYTES = 64 << 20
"""A page of the log may be so large; etcd's own limit for one value is 1.5 MiB."""
_HINTS = {
    "mvcc: database space exceeded": "its quota is reached: a head makes room within seconds, see "
    "`layercake heads`",
    "etcdserver: user name is empty": "it wants users (`etcdctl auth enable`), which etcd does not "
    "take from certificates at its gateway: protect it by client certificates instead, or let "
    "heads have members of their own",
}
"""What to do about what etcd says."""
NO_SPACE = "NOSPACE"
"""The alarm of a member whose quota is reached; nothing is written then."""
DEFRAGMENT_S = 120.0
"""A member that writes its file anew answers nothing else meanwhile."""
_ALARM = re.compile(r"memberID:\s*(\d+)\s+alarm:\s*(\w+)")
"""As a member names the alarms of all in its status: those are asked of it alone, and also while
there is no majority."""
_FSYNCS = b'etcd_disk_wal_fsync_duration_seconds_bucket{le="'


class StoreAway(OperationFailed):
    """No member of etcd answers, or none can: whether a write was done is not known."""


class NotReached(StoreAway):
    """No connection came up: what was asked is not done."""


class OutcomeUnknown(StoreAway):
    """Whether a write was done cannot be found out any more."""


class StoreRefused(OperationFailed):
    """etcd has answered that it will not: what was asked is not done."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key as it is: `created` and `modified` are etcd's revisions."""

    key: bytes
    value: bytes
    created: int
    modified: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a transaction did: whether what it compared was so, and the keys that each of its ranges
    has found, in order."""

    succeeded: bool
    revision: int
    found: tuple[tuple[KeyValue, ...], ...]


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """How one member is: `trouble` is why it cannot be asked, "" if it answers. `bytes_used` of the
    `bytes_all` that its file has are in use; the quota is for all. `fsync_s` is what nine of ten
    writes to its disk take at most, 0.0 if that was not measured, `certificate_ends` when the
    certificate that it shows does (seconds since the epoch), 0.0 if that is not known."""

    endpoint: str
    trouble: str = ""
    version: str = ""
    leader: bool = False
    learner: bool = False
    bytes_used: int = 0
    raft_index: int = 0
    alarms: tuple[str, ...] = ()
    bytes_all: int = 0
    fsync_s: float = 0.0
    certificate_ends: float = 0.0


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def after(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin so."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def is_new(key: bytes) -> dict[str, Any]:
    """Compares: there is no such key."""
    return created_at(key, 0)


def created_at(key: bytes, revision: int) -> dict[str, Any]:
    """Compares: the key was made at this revision of etcd's."""
    return {
        "key": _text(key),
        "target": "CREATE",
        "result": "EQUAL",
        "create_revision": str(revision),
    }


def modified_at(key: bytes, revision: int) -> dict[str, Any]:
    """Compares: the key was last written at this revision."""
    return {"key": _text(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def put_key(key: bytes, value: bytes, lease: int = 0) -> dict[str, Any]:
    """Writes a key; with a lease, for as long as that lasts."""
    request: dict[str, Any] = {"key": _text(key), "value": _text(value)}
    if lease:
        request["lease"] = str(lease)
    return {"request_put": request}


def delete_keys(key: bytes, end: bytes = b"") -> dict[str, Any]:
    """Deletes a key, or all from it to before `end`."""
    return {"request_delete_range": _range(key, end)}


def get_keys(key: bytes, end: bytes = b"", limit: int = 0) -> dict[str, Any]:
    """Reads a key, or all from it to before `end`."""
    return {"request_range": {**_range(key, end), "limit": str(limit)}}


def _range(key: bytes, end: bytes) -> dict[str, Any]:
    return {"key": _text(key), "range_end": _text(end)} if end else {"key": _text(key)}


def _pairs(found: Mapping[str, Any]) -> tuple[KeyValue, ...]:
    return tuple(
        KeyValue(
            b64decode(pair["key"]),
            b64decode(pair.get("value", "")),
            int(pair["create_revision"]),
            int(pair["mod_revision"]),
        )
        for pair in found.get("kvs", ())
    )


class Etcd:
    """Asks the members of one etcd. `tls` has its authority and our certificate; None: without, for
    a member that listens on loopback only. Used by one event loop."""

    def __init__(self, endpoints: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        self._endpoints = list(endpoints)
        self._tls = tls
        self._connections: OutgoingConnections | None = None
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Closes its connections."""
        if self._session is not None and self._connections is not None:
            await self._session.close()
            await self._connections.aclose()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where the members are, the one that is asked first before the others."""
        return tuple(self._endpoints)

    def use_endpoints(self, endpoints: Sequence[str]) -> None:
        """Asks these members from now on."""
        kept = [e for e in self._endpoints if e in endpoints]
        self._endpoints = kept + [e for e in endpoints if e not in kept]

    async def transaction(
        self,
        compare: Sequence[Mapping[str, Any]],
        then: Sequence[Mapping[str, Any]],
        otherwise: Sequence[Mapping[str, Any]] = (),
    ) -> Answer:
        """All of `then` if all of `compare` is so, else `otherwise`, at one revision. Raises
        StoreAway, after which it may have happened, or StoreRefused."""
        said = await self._call(
            "kv/txn", {"compare": list(compare), "success": list(then), "failure": list(otherwise)}
        )
        with _understood():
            return Answer(
                bool(said.get("succeeded")),
                int(said["header"]["revision"]),
                tuple(
                    _pairs(one["response_range"])
                    for one in said.get("responses", ())
                    if "response_range" in one
                ),
            )

    async def read(self, key: bytes, end: bytes = b"", limit: int = 0) -> tuple[KeyValue, ...]:
        """The keys of a range in order, as the majority of the members has them now. Raises
        StoreAway and StoreRefused."""
        answer = await self.transaction((), [get_keys(key, end, limit)])
        return answer.found[0]

    async def grant(self, seconds: int) -> int:
        """A new lease, by its number. Raises StoreAway and StoreRefused."""
        said = await self._call("lease/grant", {"TTL": str(seconds)})
        with _understood():
            return int(said["ID"])

    async def keep_alive(self, lease: int) -> int:
        """Renews a lease; for how many seconds, 0 if it has ended. Raises StoreAway and
        StoreRefused."""
        said = await self._call("lease/keepalive", {"ID": str(lease)})
        with _understood():
            return int(said["result"].get("TTL", 0))

    async def revoke(self, lease: int) -> None:
        """Ends a lease, and the keys that hang on it. Raises StoreAway and StoreRefused."""
        await self._call("lease/revoke", {"ID": str(lease)})

    async def watch(self, key: bytes, end: bytes = b"") -> AsyncGenerator[None, None]:
        """Something in a range may have changed: a hint, which a member that is cut off does not
        give. Ends where the connection does."""
        request = {"create_request": _range(key, end)}
        endpoint = self._endpoints[0]
        with contextlib.suppress(aiohttp.ClientError, OSError, ValueError):
            async with self._open().post(
                f"{endpoint}/v3/watch",
                json=request,
                ssl=self._tls or False,
                timeout=aiohttp.ClientTimeout(total=WATCH_S, sock_connect=CALL_S),
            ) as answer:
                async for line in answer.content:
                    if b'"events"' in line:
                        yield

    async def members(self) -> list[dict[str, Any]]:
        """The members, as etcd lists them. Raises StoreAway and StoreRefused."""
        return list((await self._call("cluster/member/list", {})).get("members", ()))

    async def add_member(self, peer_url: str, *, learner: bool) -> int:
        """Adds a member, by where the others reach it; its number. A learner has no vote. Raises
        StoreAway and StoreRefused."""
        body = {"peerURLs": [peer_url], "isLearner": learner}
        return int((await self._call("cluster/member/add", body))["member"]["ID"])

    async def promote_member(self, member: int) -> None:
        """Gives a learner its vote. Raises StoreAway, and StoreRefused while it lags."""
        await self._call("cluster/member/promote", {"ID": str(member)})

    async def remove_member(self, member: int) -> None:
        """Takes a member out. Raises StoreAway and StoreRefused."""
        await self._call("cluster/member/remove", {"ID": str(member)})

    async def compact(self, revision: int) -> None:
        """Forgets what keys were before a revision. Raises StoreAway and StoreRefused."""
        await self._call("kv/compaction", {"revision": str(revision), "physical": True})

    async def alarms(self) -> list[tuple[int, str]]:
        """The alarms that there are, each with the number of its member. Raises StoreAway and
        StoreRefused."""
        said = await self._call("maintenance/alarm", {"action": "GET"})
        with _understood():
            return [(int(a["memberID"]), str(a["alarm"])) for a in said.get("alarms", ())]

    async def disarm(self, member: int, alarm: str) -> None:
        """Ends an alarm; it comes again if its reason is still there. Raises StoreAway and
        StoreRefused."""
        body = {"action": "DEACTIVATE", "memberID": str(member), "alarm": alarm}
        await self._call("maintenance/alarm", body)

    async def defragment(self, endpoint: str) -> None:
        """Has a member give back what its file has and does not use. Raises StoreAway and
        StoreRefused."""
        await self._request(endpoint, "maintenance/defragment", {}, DEFRAGMENT_S)

    async def transfer_leadership(self, endpoint: str, member: int) -> None:
        """Has the member at `endpoint`, which leads the others, let another one do so. Raises
        StoreAway and StoreRefused."""
        body = {"targetID": str(member)}
        await self._request(endpoint, "maintenance/transfer-leadership", body)

    async def fsync_counts(self, endpoint: str) -> list[tuple[float, int]]:
        """How many of a member's writes to its disk have taken at most so many seconds, since it
        was started: bounds and counts, rising. Raises StoreAway."""
        _, text = await self._exchange("GET", f"{endpoint}/metrics", "")
        with _understood():
            lines = [
                line.removeprefix(_FSYNCS).partition(b'"} ')
                for line in text.splitlines()
                if line.startswith(_FSYNCS)
            ]
            return [(float(bound), int(float(count))) for bound, _, count in lines]

    async def certificate_ends(self, endpoint: str) -> float:
        """When the certificate of a member ends, in seconds since the epoch; 0.0 without TLS.
        Raises StoreAway."""
        if self._tls is None:
            return 0.0
        where = urlsplit(endpoint)
        try:
            async with asyncio.timeout(CALL_S):
                _, writer = await asyncio.open_connection(
                    where.hostname, where.port or 443, ssl=self._tls
                )
        except (OSError, TimeoutError) as error:
            raise StoreAway(f"{endpoint}: {error or type(error).__name__}") from None
        found = writer.get_extra_info("peercert") or {}
        writer.transport.abort()
        with _understood():
            return float(ssl.cert_time_to_seconds(found["notAfter"]))

    async def statuses(self) -> list[MemberStatus]:
        """How each member is, all asked at once."""
        return list(await asyncio.gather(*(self._status(one) for one in sorted(self._endpoints))))

    async def _status(self, endpoint: str) -> MemberStatus:
        try:
            said = await self._request(endpoint, "maintenance/status", {})
        except OperationFailed as error:
            return MemberStatus(endpoint, trouble=error.message)
        own = said.get("header", {}).get("member_id")
        return MemberStatus(
            endpoint,
            version=str(said.get("version", "")),
            leader=said.get("leader") == own,
            learner=bool(said.get("isLearner")),
            bytes_used=int(said.get("dbSizeInUse", said.get("dbSize", 0))),
            bytes_all=int(said.get("dbSize", 0)),
            raft_index=int(said.get("raftIndex", 0)),
            alarms=tuple(
                found[2]
                for text in said.get("errors", ())
                if (found := _ALARM.search(str(text))) and found[1] == own
            ),
        )

    async def _call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Asks one member after the other, that which answers first from then on."""
        troubles = []
        sent = False
        for endpoint in tuple(self._endpoints):
            try:
                return await self._request(endpoint, path, body)
            except StoreAway as error:
                troubles.append(error.message)
                sent = sent or not isinstance(error, NotReached)
                self._endpoints.remove(endpoint)
                self._endpoints.append(endpoint)
            except StoreRefused as error:
                if not sent:
                    raise
                # One that did not answer may have done it before this one has refused.
                troubles.append(f"{endpoint}: {error.message}")
                break
        raise (StoreAway if sent else NotReached)(
            f"cannot ask the heads' store: {'; '.join(troubles)}",
            hint="see `layercake heads`: it needs more than half of its members",
        )

    async def _request(
        self, endpoint: str, path: str, body: Mapping[str, Any], seconds: float = CALL_S
    ) -> dict[str, Any]:
        status, text = await self._exchange(
            "POST", f"{endpoint}/v3/{path}", json.dumps(body), seconds
        )
        try:
            said = parse_json(text)
        except ValueError as error:
            raise StoreAway(f"{endpoint}: {error}") from None
        if status == 200 and isinstance(said, dict) and "error" not in said:
            return said
        raise _failure(endpoint, said)

    async def _exchange(
        self, method: str, url: str, body: str, seconds: float = CALL_S
    ) -> tuple[int, bytes]:
        """Status and content of an answer."""
        endpoint = url.partition("/v3/")[0]
        try:
            async with (
                asyncio.timeout(seconds),
                self._open().request(
                    method,
                    url,
                    data=body,
                    headers={"Accept-Encoding": "identity"},
                    ssl=self._tls or False,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=seconds),
                ) as answer,
            ):
                text = await answer.content.read(ANSWER_BYTES + 1)
                while text and not answer.content.at_eof() and len(text) <= ANSWER_BYTES:
                    text += await answer.content.read(ANSWER_BYTES + 1 - len(text))
                return answer.status, text
        except aiohttp.ClientConnectorError as error:
            why = error.os_error.strerror or type(error).__name__
            raise NotReached(f"{endpoint}: {why}") from None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            why = str(error) or type(error).__name__
            raise StoreAway(f"{endpoint}: {why}") from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:  # they belong to the loop that uses them
            self._connections = OutgoingConnections()
            self._session = self._connections.session(
                auto_decompress=False, timeout=aiohttp.ClientTimeout(total=CALL_S)
            )
        return self._session


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """What is read in an answer. Raises StoreAway for one that is not as etcd's are: whatever was
    asked may have been done."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StoreAway(
            f"cannot read what the heads' store answers: {type(error).__name__}: {error}"
        ) from None


_SURE = (3, 5, 6, 8, 9)
"""gRPC's codes after which nothing was done: invalid argument, not found, already exists, resource
exhausted, failed precondition. Whatever else is unknown."""


def _failure(endpoint: str, said: Any) -> OperationFailed:
    """What an error of etcd's means."""
    error = said.get("error") if isinstance(said, dict) else None
    if isinstance(error, dict):  # of a stream
        said = error
    if not isinstance(said, dict):
        return StoreAway(f"{endpoint}: {str(said)[:300]}")
    message = str(said.get("message") or said.get("error") or said)[:300]
    code = said.get("code", said.get("grpc_code", said.get("http_code")))
    if code not in _SURE:
        return StoreAway(f"{endpoint}: {message}")
    hint = next((hint for text, hint in _HINTS.items() if text in message), "")
    return StoreRefused(f"the heads' store refuses: {message}", hint=hint)
