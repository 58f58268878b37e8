"""Requests to one Redfish service: all that is asked of it goes through here.

What services do differently is met here once, for every question: logins (Basic, or sessions where
Basic is not taken), redirects to the same path with or without its slash, entity tags in the form
that the service takes, and answers that mean "not now". Sources: DSP0266 (Redfish), RFC 9110.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp

from layercake.base.lease import Permit, always
from layercake.kraken.errors import LayercakeError, OperationFailed
from powerman.driver import SLOWEST_ANSWER_S, NotNow, Unsupported, login_refused, unreachable
from powerman.inventory import TIMEOUT_S
from powerman.redfish.causes import cannot_connect, http_cause
from powerman.redfish.facts import LOCAL_PATH, REDFISH_PATH, items, link, mapping, message_of
from powerman.redfish.web import Web, read_json, tls_context
from powerman.settings import BmcSpec

ROOT = "/redfish/v1/"
"""Needs no login (DSP0266, section 13.3.2)."""
_SESSIONS = f"{ROOT}SessionService/Sessions"
_PATIENCE = 4.0
"""So many times timeout_s for the answer of a service that has taken the connection: some think
for ten seconds."""
_CONNECT_S = 2.3
"""One that is there takes a connection at once, however long it thinks about the answer then."""
_DECAY = 0.8
_REDIRECTS = 3
_PAGES = 64
_MOST_DIGITS = 6
_NOT_NOW = frozenset({429, 500, 502, 503, 504})
_TAG_REFUSED = frozenset({412, 428})


class NoSuchPath(OperationFailed):
    """The service has nothing at a path: it has another one since a firmware update, say."""


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP answer: its status, the JSON object in it ({} if it is none), and what counts of its
    header."""

    status: int
    body: Mapping[str, Any]
    tag: str = ""  # ETag
    location: str = ""  # where it sends us
    token: str = ""  # X-Auth-Token
    retry_s: int = 0  # Retry-After
    basic: bool | None = None  # of a 401: whether it takes Basic; None if it does not say


class RedfishConnection:
    """One service, with our login."""

    def __init__(self, spec: BmcSpec, web: Web, permit: Permit = always) -> None:
        self._spec = spec
        self._permit = permit
        self._web = web
        plain = base64.b64encode(f"{spec.username}:{spec.password}".encode()).decode()
        self._basic = {"Authorization": f"Basic {plain}"}
        self._by_session = False  # whether it takes sessions only, as far as is known
        self._token = ""
        self._session_path = ""
        self._moved: dict[str, str] = {}  # paths that it has sent elsewhere
        self._tag_form = 0  # which of tag_forms it took last
        self._connect_s = max(_CONNECT_S, spec.timeout_s if spec.timeout_s > TIMEOUT_S else 0.0)
        self.slowest = 0.0

    async def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, missing: str = ""
    ) -> Mapping[str, Any]:
        """The body of an answer. Raises Unreachable, NotNow, LoginRefused, OperationFailed with
        what the service says, and Unsupported with `missing` for a path that is not there."""
        answer = await self.send(method, path, body)
        self.check(answer, method, path, missing)
        return answer.body

    async def patch(self, path: str, changes: Mapping[str, Any]) -> None:
        """Changes a resource, with its entity tag in the form that the service takes. Raises as
        `request`."""
        before = await self.send("GET", path)
        self.check(before, "GET", path)
        forms = tag_forms(str(before.body.get("@odata.etag") or ""), before.tag)
        first = self._tag_form if self._tag_form < len(forms) else 0
        answer = before
        for number in (first, *(n for n in range(len(forms)) if n != first)):
            headers = {"If-Match": forms[number]} if forms[number] else {}
            answer = await self.send("PATCH", path, changes, headers)
            if answer.status not in _TAG_REFUSED:
                self._tag_form = number
                break
        self.check(answer, "PATCH", path)

    async def members(self, path: str) -> AsyncIterator[Mapping[str, Any]]:
        """The members of a collection, those on its further pages too (DSP0266, section 7.3.1.6):
        links, or whole resources. Raises as `request`."""
        seen: set[str] = set()
        while path and path not in seen and len(seen) < _PAGES:
            seen.add(path)
            page = await self.request("GET", path)
            for member in items(page.get("Members")):
                yield member
            path = link(page.get("Members@odata.nextLink"), query=True)

    async def resources(self, path: str) -> AsyncIterator[tuple[str, Mapping[str, Any]]]:
        """(path, resource) of the members of a collection. One that cannot be read is left out;
        that the BMC is silent, or has refused the login, ends it. Raises as `request`."""
        async for member in self.members(path):
            place = link(member)
            if not place:
                continue
            if len(member) > 1:
                yield place, member
                continue
            with contextlib.suppress(OperationFailed, NotNow):
                yield place, await self.request("GET", place)

    @property
    def answer_limit(self) -> float:
        """Seconds that one answer may take."""
        return max(self._spec.timeout_s * _PATIENCE, 3 * self.slowest)

    def login(self) -> Mapping[str, str]:
        """Header fields with our login, by what is known of the service."""
        return {"X-Auth-Token": self._token} if self._token else self._basic

    def url(self, path: str) -> str:
        """The URL of a path of this service: behind its address, "@other/x" would be another
        host's, and so would "0/x" behind a port. All URLs that our login goes to are made here.
        Raises OperationFailed."""
        if not LOCAL_PATH.fullmatch(path):
            raise OperationFailed(
                f"cannot ask the BMC at {self._spec.where} for {path[:80]!r}: it is no path there",
                hint="its links are wrong: renew its firmware",
            )
        return self._spec.address + path

    async def close(self) -> None:
        """Ends our session, if there is one: services have few."""
        if self._token and self._session_path:
            with contextlib.suppress(LayercakeError):
                await self._exchange("DELETE", self._session_path, None, self.login())
        self._token = ""

    async def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = {},
    ) -> Response:
        """One request with our login, whatever its status; a refused login is one too. Raises
        Unreachable, LoginRefused, OperationFailed."""
        if self._by_session and not self._token:
            await self._open_session()
        permit = always if method == "GET" else self._permit
        answer = await self._follow(method, path, body, {**self.login(), **headers}, permit)
        if answer.status != 401:
            return answer
        if self._token:  # it has ended our session: BMCs do after minutes
            self._token = ""
        elif answer.basic:
            return answer  # it takes Basic, so another try would only count as one more failure
        self._by_session = True
        await self._open_session()
        return await self._follow(method, path, body, {**self.login(), **headers}, permit)

    async def _open_session(self) -> None:
        """Logs in by a session (DSP0266, section 13.3.4). Raises LoginRefused."""
        root = (await self._follow("GET", ROOT, None, {})).body
        path = link(mapping(root.get("Links")).get("Sessions")) or _SESSIONS
        login = {"UserName": self._spec.username, "Password": self._spec.password}
        answer = await self._follow("POST", path, login, {})
        if answer.status in _NOT_NOW:
            self.check(answer, "POST", path)
        if answer.status >= 300 or not answer.token:
            self._by_session = answer.status not in (404, 405, 501)  # it has no sessions
            raise login_refused(self._spec.where, self._spec.username, message_of(answer.body))
        self._token = answer.token
        self._session_path = link({"@odata.id": answer.location}) or link(answer.body)

    def check(self, answer: Response, method: str, path: str, missing: str = "") -> None:
        """Raises what an answer's status means, see `request`."""
        status = answer.status
        where = self._spec.where
        if status < 300:
            return
        why = f"HTTP {status} {message_of(answer.body)}".rstrip()
        if status in (401, 403):
            raise login_refused(where, self._spec.username, message_of(answer.body))
        if status in _NOT_NOW:
            raise NotNow(f"cannot {method} {path} at {where} now: {why}", answer.retry_s)
        if status == 404 and missing:
            raise Unsupported(f"cannot use the BMC at {where}: {missing}")
        kind = NoSuchPath if status == 404 else OperationFailed
        raise kind(
            f"cannot {method} {path} at {where}: {why}",
            hint=http_cause(status, answer.location, self._spec.address),
        )

    async def _follow(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        permit: Permit = always,
    ) -> Response:
        """An answer, by way of redirects inside the same service: many have a path with a slash
        only, or without. Anywhere else our password would go to somebody else."""
        asked = self._moved.get(path, path)
        answer = await self._exchange(method, asked, body, headers, permit)
        for _ in range(_REDIRECTS):
            moved = self._redirected(asked, answer)
            if not moved:
                break
            asked = moved
            answer = await self._exchange(method, asked, body, headers, permit)
            if answer.status < 300:
                self._moved[path] = asked
        return answer

    def _redirected(self, path: str, answer: Response) -> str:
        """The path that a redirect leads to at the same service, "" for any other answer. A POST
        stays one by 301 and 302 too: these services mean the path, and not the method."""
        if answer.status not in (301, 302, 307, 308) or not answer.location:
            return ""
        try:
            there = urlsplit(urljoin(self._spec.address + path, answer.location))
            here = urlsplit(self._spec.address)
            same = (there.scheme, there.hostname, there.port) == (
                here.scheme,
                here.hostname,
                here.port,
            )
        except ValueError:
            return ""
        query = f"?{there.query}" if there.query else ""
        moved = f"{there.path}{query}"
        return moved if same and REDFISH_PATH.fullmatch(moved) and moved != path else ""

    async def _exchange(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        permit: Permit = always,
    ) -> Response:
        """One HTTP request; it is given up where the permit ends, as it may not be sent later.
        Raises Unreachable, OperationFailed if the certificate is not to be trusted."""
        spec = self._spec
        url = self.url(path)
        began = time.monotonic()
        try:
            secure = tls_context(spec.verify_tls) if spec.address.startswith("https:") else True
            async with (
                asyncio.timeout(min(self.answer_limit, permit())),
                self._web.session.request(
                    method,
                    url,
                    json=body,
                    ssl=secure,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
                    headers={"OData-Version": "4.0", "Accept": "application/json", **headers},
                ) as response,
            ):
                answer = _response(response, await read_json(response))
                took = min(time.monotonic() - began, SLOWEST_ANSWER_S)
                self.slowest = max(took, self.slowest * _DECAY)
                return answer
        except TimeoutError as error:
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                # dead, or it takes long for TLS: it gets more the next time
                self._connect_s = max(self._connect_s, min(2 * self._connect_s, spec.timeout_s))
            raise unreachable(
                spec.where, f"no answer in {time.monotonic() - began:.0f} s"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise cannot_connect(spec.where, error) from None


def _response(response: aiohttp.ClientResponse, body: Mapping[str, Any]) -> Response:
    header = response.headers
    schemes = [one.strip().lower() for one in header.getall("WWW-Authenticate", ())]
    return Response(
        response.status,
        body,
        tag=header.get("ETag", ""),
        location=header.get("Location", ""),
        token=header.get("X-Auth-Token", ""),
        retry_s=retry_seconds(header.get("Retry-After", ""), header.get("Date", "")),
        basic=any(one.startswith("basic") for one in schemes) if schemes else None,
    )


def retry_seconds(after: str, date: str) -> int:
    """Seconds of a Retry-After: they are said as such, or as a date, which is compared with the
    answer's own Date, for a BMC's clock may be years behind (RFC 9110, section 10.2.3). 0 for what
    says neither."""
    if after.isascii() and after.isdecimal() and len(after) < _MOST_DIGITS:
        return int(after)
    try:
        left = (parsedate_to_datetime(after) - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError, OverflowError):  # TypeError: one has a zone, one has none
        return 0
    return min(max(0, math.ceil(left)), int(10**_MOST_DIGITS) - 1)


def tag_forms(body_tag: str, header_tag: str) -> list[str]:
    """The forms of If-Match to try, best first: as the service wrote it, weak for strong and the
    other way round (services compare them as strings, and some write one and take the other), any
    ("*"), and none ("")."""
    tags = [tag for tag in dict.fromkeys((body_tag, header_tag)) if tag.isprintable() and tag]
    others = [tag.removeprefix("W/") if tag.startswith("W/") else f"W/{tag}" for tag in tags]
    return list(dict.fromkeys([*tags, *others, "*", ""])) if tags else ["", "*"]
