"""Redfish BMCs: aiohttp for what is done often (state and reset), sushy in a bounded thread pool
for the rest."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

import aiohttp

from layercake.kraken.errors import LayercakeError, OperationFailed
from powerman.driver import (
    SLOWEST_ANSWER_S,
    Inspection,
    LogEntry,
    PowerState,
    Sensor,
    Unsupported,
    VirtualDrive,
    login_refused,
    unreachable,
)
from powerman.hardware import Fact
from powerman.health import Health
from powerman.inventory import TIMEOUT_S
from powerman.redfish.capping import RedfishCap
from powerman.redfish.console import RedfishSource
from powerman.redfish.facts import (
    Targets,
    boots_by,
    choose_reset,
    link_of,
    message_of,
    parse_power,
    progress,
    redfish_boot,
    redfish_clock,
    redfish_facts,
    redfish_health,
)
from powerman.redfish.sushy_client import PATIENCE, SushyClient
from powerman.redfish.web import Web, read_json, tls_context
from powerman.settings import BmcSpec

Result = TypeVar("Result")

_DECAY = 0.8
_ACCOUNTS = "/redfish/v1/AccountService/Accounts"
_ROOT = "/redfish/v1/"  # needs no login (DSP0266, section 13.3.2)
_LAST = {
    "Connection": "close"
    # of a request that sushy's follow: some BMCs have one connection at a time, and theirs is
    # another
}
# one that is there takes a connection at once, however long it thinks about the answer then
_CONNECT_S = 2.3
_SUSHY_REQUESTS = 6  # a discovery is this many requests at most; each may take timeout_s


class RedfishDriver:
    """One Redfish BMC; see `driver.PowerDriver` for what the methods mean."""

    def __init__(self, spec: BmcSpec, web: Web) -> None:
        self._spec = spec
        self._web = web
        token = base64.b64encode(f"{spec.username}:{spec.password}".encode()).decode()
        self._login = {"Authorization": f"Basic {token}"}
        self._sushy = SushyClient(spec)
        self._targets: Targets | None = None
        self._slowest = 0.0
        self.progress = ""
        self.health = Health()
        self.console = RedfishSource(spec.where, self._system, self._socket)
        self.cap = RedfishCap(spec.where, self._system, self.request)
        self._connect_s = max(_CONNECT_S, spec.timeout_s if spec.timeout_s > TIMEOUT_S else 0.0)

    @property
    def answer_s(self) -> float:
        """See PowerDriver."""
        return self._slowest

    async def state(self) -> PowerState:
        """Reads the power state."""
        system = await self._system()
        self.progress = progress(system)
        self.health = redfish_health(system)
        return parse_power(system, self._spec.where)

    async def on(self) -> None:
        """Asks for power on."""
        await self._reset("on")

    async def off(self, *, soft: bool = False) -> None:
        """Asks for power off."""
        await self._reset("soft" if soft else "off")

    async def cycle(self) -> None:
        """Asks for off and on again."""
        await self._reset("cycle")

    async def reset(self) -> None:
        """Asks for a hard reset."""
        await self._reset("reset")

    async def boot_network(self) -> None:
        """Makes the next boot a network boot, by sushy, which knows what this vendor wants to
        hear."""
        await self._by_sushy(SushyClient.boot_network)

    async def boot_uri(self, uri: str) -> None:
        """Makes the next boot UEFI HTTP Boot of a URI, by sushy."""
        await self._by_sushy(lambda client: client.boot_uri(uri))

    @property
    def drive(self) -> VirtualDrive:
        """Its VirtualMedia, by sushy."""
        return _Drive(self._by_sushy)

    async def boots_as_told(self) -> bool | None:
        """Reads the override of the boot source; None of a system that has none."""
        return boots_by(await self._system(), self._spec.boot)

    async def sensors(self) -> list[Sensor]:
        """Reads temperatures and fans, by sushy."""
        return await self._by_sushy(SushyClient.sensors)

    async def event_log(self) -> list[LogEntry]:
        """Reads the system's log, by sushy's connection."""
        return await self._by_sushy(SushyClient.event_log)

    async def hardware(self) -> list[Fact]:
        """Reads the system and its manager."""
        system = await self._system()
        manager = await self._manager(system)
        return redfish_facts(system, await self.request("GET", manager) if manager else {})

    async def log_mark(self) -> None:
        """Redfish has no such question."""

    async def inspect(self) -> Inspection:
        """Reads the boot override of the system and the clock of its manager. Not by sushy, whose
        threads would take minutes for a thousand BMCs that are asked at once."""
        path = self._targets.system if self._targets else self._spec.system or ""
        if not path:
            path = link_of(await self.request("GET", f"{_ROOT}Systems"), "Members")
        if not path:
            raise Unsupported(f"cannot look at the BMC at {self._spec.where}: it names no system")
        system = await self.request("GET", path)
        manager = await self._manager(system)
        clock = redfish_clock(await self.request("GET", manager)) if manager else None
        device, mode, modes, network = redfish_boot(system, self._spec.boot)
        return Inspection(clock=clock, device=device, mode=mode, modes=modes, network=network)

    async def set_password(self, new: str) -> None:
        """Sets the password of our own account (ManagerAccount, DSP0266 section 13.3.7); sushy has
        no accounts."""
        accounts = await self.request(
            "GET", _ACCOUNTS, missing="it has no accounts that could be changed"
        )
        for member in accounts.get("Members") or ():
            path = link_of({"one": [member]}, "one")
            account = await self.request("GET", path) if path else {}
            if account.get("UserName") == self._spec.username:
                tag = account.get("@odata.etag")
                await self.request(
                    "PATCH",
                    path,
                    {"Password": new},
                    headers={"If-Match": tag} if isinstance(tag, str) else {},
                )
                return
        raise Unsupported(
            f"cannot set the password at {self._spec.where}: it names no account of our user"
        )

    async def close(self) -> None:
        """Drops sushy's connection; ours belong to the shared client."""
        self._sushy.close()

    async def _system(self) -> Mapping[str, Any]:
        return await self.request("GET", (await self._discovered()).system)

    async def _manager(self, system: Mapping[str, Any]) -> str:
        """The path of a system's manager, "" if it has none."""
        return link_of(system.get("Links"), "ManagedBy") or link_of(
            await self.request("GET", f"{_ROOT}Managers"), "Members"
        )

    async def _socket(self, path: str) -> aiohttp.ClientWebSocketResponse:
        secure = (
            tls_context(self._spec.verify_tls) if self._spec.address.startswith("https:") else True
        )
        async with asyncio.timeout(self._answer_limit):
            return await self._web.session.ws_connect(
                self._spec.address + path,
                ssl=secure,
                headers=self._login,
                heartbeat=20.0,
                max_msg_size=1 << 20,
            )

    async def _discovered(self) -> Targets:
        if self._targets is None:
            self._targets = await self._by_sushy(SushyClient.targets)
        return self._targets

    async def _reset(self, action: str) -> None:
        targets = await self._discovered()
        await self.request(
            "POST", targets.reset, {"ResetType": choose_reset(action, targets, self._spec.where)}
        )

    async def _by_sushy(self, work: Callable[[SushyClient], Result]) -> Result:
        """Runs blocking work in a thread, after a cheap question that a dead BMC does not get
        past."""
        await self._exchange("GET", _ROOT, None, _LAST)
        client = self._sushy
        done = False
        try:
            async with asyncio.timeout(self._answer_limit * _SUSHY_REQUESTS):
                result = await asyncio.get_running_loop().run_in_executor(
                    self._web.threads, work, client
                )
            done = True
        except TimeoutError:
            raise unreachable(self._spec.where, "it answers too slowly") from None
        except LayercakeError:
            done = True
            raise
        finally:
            if not done:  # the thread may still be at it, and two may not use one client
                self._sushy = SushyClient(self._spec)
        return result

    @property
    def _answer_limit(self) -> float:
        """Seconds that one answer may take."""
        return max(self._spec.timeout_s * PATIENCE, 3 * self._slowest)

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        missing: str = "",
        headers: Mapping[str, str] = {},
    ) -> Mapping[str, Any]:
        """One request with our login. Raises Unreachable, LoginRefused, OperationFailed with what
        the service says, and Unsupported with `missing` for a path that is not there."""
        status, answer = await self._exchange(method, path, body, {**self._login, **headers})
        where = self._spec.where
        if status in (401, 403):
            raise login_refused(where, self._spec.username, message_of(answer))
        if status == 404 and missing:
            raise Unsupported(f"cannot use the BMC at {where}: {missing}")
        if status == 404:
            # the system has another path now, after a firmware update say: look again next time
            self._targets = None
        if status >= 300:
            raise OperationFailed(
                f"cannot {method} {path} at {where}: HTTP {status} {message_of(answer)}".rstrip()
            )
        return answer

    async def _exchange(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, Any]]:
        """(HTTP status, JSON body). Never follows a redirect: it could lead our password elsewhere.
        Raises Unreachable, OperationFailed if the certificate is not to be trusted."""
        spec = self._spec
        try:
            secure = tls_context(spec.verify_tls) if spec.address.startswith("https:") else True
            began = time.monotonic()
            async with (
                asyncio.timeout(self._answer_limit),
                self._web.session.request(
                    method,
                    spec.address + path,
                    json=body,
                    ssl=secure,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
                    headers={"OData-Version": "4.0", "Accept": "application/json", **headers},
                ) as response,
            ):
                answer = await read_json(response)
                if headers is _LAST:
                    response.close()
                self._slowest = max(
                    min(time.monotonic() - began, SLOWEST_ANSWER_S), self._slowest * _DECAY
                )
                return response.status, answer
        except aiohttp.ClientConnectorCertificateError as error:
            raise OperationFailed(
                f"cannot trust the BMC at {spec.where}: {error.certificate_error}",
                hint="set bmc.verify_tls to the path of the CA that signed its certificate",
            ) from None
        except TimeoutError as error:
            if isinstance(
                error, aiohttp.ConnectionTimeoutError
            ):  # dead, or it takes long for TLS: it gets more the next time
                self._connect_s = max(self._connect_s, min(2 * self._connect_s, spec.timeout_s))
            raise unreachable(
                spec.where, f"no answer in {time.monotonic() - began:.0f} s"
            ) from None
        except aiohttp.ClientConnectorError as error:
            raise unreachable(spec.where, error.os_error.strerror or str(error.os_error)) from None
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable(spec.where, str(error) or type(error).__name__) from None


class _BySushy(Protocol):
    def __call__(self, work: Callable[[SushyClient], Result], /) -> Awaitable[Result]: ...


class _Drive:
    """See VirtualDrive."""

    def __init__(self, by_sushy: _BySushy) -> None:
        self._by_sushy = by_sushy

    async def insert(self, url: str) -> str:
        return await self._by_sushy(lambda client: client.insert(url))

    async def holds(self) -> bool:
        return await self._by_sushy(SushyClient.holds_medium)

    async def boot(self) -> None:
        await self._by_sushy(SushyClient.boot_medium)

    async def eject(self) -> bool:
        return await self._by_sushy(SushyClient.eject)
