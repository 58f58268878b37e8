"""Drivers that the boot profile does not have: what the head has for devices without one is
fetched, checked and loaded.

The node says what its devices are, the head says which modules of this kernel take them, what each
is (BLAKE2b-256 and size), what it needs loaded before it, and the firmware that there is for it.
All of that comes over the session's TLS, and what is fetched then must be that. Modules are loaded
as the distribution has signed them; whether that is enough, the kernel decides.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from layercake.base.files import write_atomic
from layercake.base.text import first_few, parse_json
from layercake.kraken.backoff import backoff
from layercake.kraken.errors import LayercakeError, OperationFailed, Refused, Unreachable
from layercake.kraken.wire import bearer
from minos import hardware, syscalls
from minos.agent.head_link.connection import HeadConnection
from minos.agent.head_link.outbox import EventSink
from minos.agent.http.client import BODY_LIMIT
from minos.agent.state import Config, Session
from minos.events import DRIVER_FAILED, DRIVERS, DRIVERS_LEFT

AT_ONCE = 500
"""How many kinds of devices are asked about in one request."""
LONGEST = 1024
"""Characters of what a device says it is, as the head takes it; those that modules are for have
less than a hundred."""
FIRMWARE_LIMIT = 64 << 20
"""Bytes of firmware that one module may ask for: all of it stays in the node's memory."""
BACKOFF_FIRST = 0.5
BACKOFF_MAX = 60.0
BIND_LOOKS = 10
BIND_EVERY_S = 0.1
"""How often a device is looked at that is not bound yet by its driver, before the node says that it
was not: some probe aside."""
_NAME = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)
FIRMWARE_NAME = re.compile(r"[A-Za-z0-9_+,.@ -]{1,128}(/[A-Za-z0-9_+,.@ -]{1,128}){0,8}", re.ASCII)
"""The names of firmware files that head and node speak of; all of linux-firmware have such."""
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NO_DEVICE = (errno.ENODEV, errno.ENXIO)

Part = tuple[str, int]
"""What a file is: hex of its BLAKE2b-256, and its size."""


def part(said: Any) -> Part:
    """Raises ValueError, TypeError, KeyError for what is none."""
    digest = said["digest"]
    size = said["size"]
    if not _DIGEST.fullmatch(digest) or type(size) is not int or not 0 < size <= BODY_LIMIT:
        raise ValueError("a digest or size is not as agreed")
    return digest, size


class Module:
    """One module as the head describes it: what it is, None for one that it does not give (`error`
    says why); what to load, in this order, itself last; its firmware; why no device gets it by
    itself (`held`), "" if devices do."""

    def __init__(self, name: str, said: Mapping[str, Any]) -> None:
        self.name = _name(name)
        self.held, self.error = (str(said.get(key) or "")[:300] for key in ("held", "error"))
        self.part = None if (self.held or self.error) and "digest" not in said else part(said)
        self.needs = [_name(need) for need in said.get("needs") or [name]]
        self.firmware = {
            _firmware(path): part(its) for path, its in (said.get("firmware") or {}).items()
        }
        if self.needs[-1] != name:
            raise ValueError("a module is not the last of what it needs")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("the name of a module is not as agreed")
    return text


def _firmware(path: str) -> str:
    if not FIRMWARE_NAME.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise ValueError("the name of a firmware file is not as agreed")
    return path


def answer(said: Any) -> tuple[dict[str, list[str]], dict[str, Module]]:
    """({what a device says it is: names of modules}, {name: module}) as the head answers. Raises
    OperationFailed."""
    try:
        modules = {name: Module(name, its) for name, its in said["modules"].items()}
        devices = {
            str(alias): [str(name) for name in names] for alias, names in said["devices"].items()
        }
        unknown = {n for names in devices.values() for n in names} | {
            n for m in modules.values() for n in m.needs
        }
        if unknown - modules.keys():
            raise ValueError("a module is named and not described")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OperationFailed(
            f"the head's answer is not as agreed: {error!r}",
            hint="are head and minOS of the same version?",
        ) from None
    return devices, modules


class Drivers:
    """Gets drivers. `session` gives the session of now, `load` loads a module's file; firmware that
    was fetched goes below `firmware`, and modules that are here already are in `modules`. `tries`:
    how often a head that is away is asked, 0 for as often as it takes."""

    def __init__(
        self,
        config: Config,
        session: Callable[[], Session],
        event: EventSink,
        *,
        sys: str = hardware.SYS,
        modules: str = hardware.MODULES,
        firmware: str = hardware.FIRMWARE,
        command_line: str = "/proc/cmdline",
        load: Callable[[str], None] = syscalls.load_module,
        sleep: Callable[[float], None] = time.sleep,
        tries: int = 0,
    ) -> None:
        self._config = config
        self._session = session
        self._event = event
        self._sys = sys
        self._modules = Path(modules)
        self._firmware = Path(firmware)
        self._refused = hardware.unasked(Path(command_line).read_text())
        self._load = load
        self._sleep = sleep
        self._tries = tries
        self._connection: HeadConnection | None = None
        self._fetched: dict[str, int] = {}
        self._idle: set[str] = set()

    def get(self, devices: Mapping[str, list[str]]) -> bool:
        """Gets what devices without a driver, {what they say they are: their names}, can have.
        Whether any has one now. Waits for a head that is away. Never raises LayercakeError."""
        names = sorted(name for name in devices if len(name) <= LONGEST)
        came = False
        for at in range(0, len(names), AT_ONCE):
            with contextlib.closing(self):
                came |= self._some({name: devices[name] for name in names[at : at + AT_ONCE]})
        return came

    def named(self, alias: str) -> None:
        """Loads what the head has for something that no device is, but the kernel asks for by an
        alias ("rtnl-link-bond"). Raises LayercakeError, OSError."""
        with contextlib.closing(self):
            takers, described = self._query_head([alias]) or ({}, {})
            if not takers.get(alias):
                raise OperationFailed(f"the head has nothing for {alias}")
            for name in takers[alias]:
                for need in described[name].needs:
                    self._one(described[need])

    def close(self) -> None:
        """Ends the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _some(self, devices: Mapping[str, list[str]]) -> bool:
        try:
            answer = self._query_head(sorted(devices))
        except (LayercakeError, OSError) as error:
            self._event(
                DRIVER_FAILED,
                f"cannot look for drivers that the boot profile does not have: {error}",
            )
            return False
        if answer is None:
            return False
        takers, described = answer
        wanted: dict[str, list[str]] = {}
        for alias in sorted(takers.keys() & devices.keys()):
            for name in takers[alias]:
                wanted[name] = [*wanted.get(name, []), *devices[alias]]
        wanted = {name: places for name, places in wanted.items() if not self._is_loaded(name)}
        left = {name: why for name in wanted if (why := self._unasked(described[name]))}
        if left:
            self._event(
                DRIVERS_LEFT,
                "; ".join(
                    f"{name} for {first_few(wanted[name], 3)}: {why}" for name, why in left.items()
                ),
                left=left,
            )
        began = time.monotonic()
        loaded = {
            name: places
            for name, places in wanted.items()
            if name not in left and self._give(name, places, described)
        }
        if not loaded:
            return False
        return self._report_bound(loaded, time.monotonic() - began)

    def _unasked(self, module: Module) -> str:
        return (
            "the kernel's arguments say that no device shall get it"
            if module.name in self._refused
            else module.held
        )

    def _report_bound(self, loaded: Mapping[str, list[str]], seconds: float) -> bool:
        """Says which device has which driver; whether any has one."""
        waiting = [
            place for name, places in loaded.items() if name not in self._idle for place in places
        ]
        for _ in range(BIND_LOOKS):
            if all(hardware.driver(place, self._sys) for place in waiting):
                break
            self._sleep(BIND_EVERY_S)
        bound = {
            name: [
                p
                for p in places
                if hardware.driver(p, self._sys)
                and hardware.module_of(p, self._sys) not in loaded.keys() - {name}
            ]
            for name, places in loaded.items()
        }
        text = ", ".join(
            f"{name} for {first_few(bound[name], 3)}"
            if bound[name]
            else f"{name}, which does not take {first_few(places, 3)}"
            for name, places in loaded.items()
        )
        self._event(
            DRIVERS,
            f"drivers were fetched from the head: {text}",
            seconds=round(seconds, 2),
            fetched=self._fetched,
            drivers={name: bound[name][:20] for name in loaded},
        )
        self._fetched = {}
        return any(bound.values())

    # ---- loading
    # -----

    def _is_loaded(self, name: str) -> bool:
        return Path(self._sys, "module", name).is_dir()

    def _give(self, name: str, places: list[str], described: Mapping[str, Module]) -> bool:
        """Loads a module and what it needs; whether it is loaded. Why not is told."""
        before = ""
        for need in described[name].needs:
            try:
                self._one(described[need])
            except (
                LayercakeError,
                OSError,
            ) as error:  # a module can do without some of what it names (softdep): go on
                why = hardware.reason(error) if isinstance(error, OSError) else str(error)
                if need == name:
                    self._event(
                        DRIVER_FAILED,
                        f"cannot load driver {name} for {first_few(places, 3)}: {why}{before}",
                        module=name,
                        devices=places[:20],
                    )
                    return False
                before = before or f"; before it, {need}: {why}"
        return True

    def _one(self, module: Module) -> None:
        """Loads one module: minOS' own file of it, or what is fetched. Raises LayercakeError,
        OSError."""
        if self._is_loaded(module.name):
            return
        own = self._modules / f"{module.name}.ko"
        if own.exists():
            self._into_the_kernel(module.name, own)
            return
        if module.part is None:
            raise Refused(module.error or module.held)
        if sum(size for _, size in module.firmware.values()) > FIRMWARE_LIMIT:
            raise OperationFailed(
                f"its firmware is over {FIRMWARE_LIMIT >> 20} MiB",
                hint="build a boot profile with this module",
            )
        for path, its in module.firmware.items():
            target = self._firmware / path
            if not target.exists():
                data = self._fetch(f"firmware/{path.replace(' ', '%20')}", f"firmware {path}", its)
                target.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(target, data, mode=0o644)
        file = Path(self._config.run, "module.ko")
        try:
            write_atomic(
                file, self._fetch(f"modules/{module.name}", f"module {module.name}", module.part)
            )
            self._into_the_kernel(module.name, file)
        finally:
            file.unlink(missing_ok=True)

    def _into_the_kernel(self, name: str, file: Path) -> None:
        try:
            self._load(str(file))
        except OSError as error:
            if error.errno not in _NO_DEVICE:
                raise
            self._idle.add(name)

    # ---- what the head says
    # -----

    def _query_head(
        self, aliases: Iterable[str]
    ) -> tuple[dict[str, list[str]], dict[str, Module]] | None:
        """What the head has for devices; None from an older head, which does not know the question.
        Raises LayercakeError."""
        body = json.dumps({"release": os.uname().release, "devices": list(aliases)}).encode()
        status, data = self._request("POST", "/node/v1/drivers", body)
        if status in (404, 405):
            return None
        try:
            described = parse_json(data)
        except ValueError:
            described = None
        if status != 200:
            why = described.get("error") if isinstance(described, dict) else ""
            raise OperationFailed(
                f"the head answers {status}: {str(why or 'no reason given')[:500]}"
            )
        return answer(described)

    def _fetch(self, path: str, what: str, expected: Part) -> bytes:
        """Raises OperationFailed, and Refused for what is not as it was described."""
        status, data = self._request("GET", f"/node/v1/{path}")
        if status != 200:
            raise OperationFailed(f"the head answers {status} for {what}")
        if (hashlib.blake2b(data, digest_size=32).hexdigest(), len(data)) != expected:
            raise Refused(
                f"{what} came as {len(data)} bytes that are not those that the head has described"
            )
        self._fetched[what] = len(data)
        return data

    def _request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """One exchange; a head that is away is waited for. Raises LayercakeError."""
        failures = 0
        while True:
            try:
                session = self._session()
                headers = {
                    "Authorization": bearer(session.key, self._config.node_bytes, session.number),
                    "Content-Type": "application/json",
                }
                if self._connection is None:
                    self._connection = HeadConnection(self._config, session)
                status, data = self._connection.request(method, path, headers, body)
                if status < 500:
                    return status, data
            except Unreachable:
                pass
            self.close()
            failures += 1
            if failures == self._tries:
                raise Unreachable("the head cannot be reached")
            self._sleep(backoff(failures, BACKOFF_FIRST, BACKOFF_MAX))
