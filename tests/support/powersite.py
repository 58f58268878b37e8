"""A whole head over a machine room: real processes of the head and its modules in a network
namespace, which orders power."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import yaml
from headclient import HeadClient, HeadRunError
from headinit import init
from hostnode import HeadNamespace

from tests.support.machineroom import Bay, MachineRoom

ROOT = Path(__file__).resolve().parents[2]
_LOCAL = ("10.98.0.0/16", "10.97.0.64/26", "10.97.0.128/25")
"""BMCs and nodes: any of these addresses can be bound in the namespace."""

Order = Literal["cycle", "off", "on"]


@dataclass(frozen=True)
class Outcome:
    """How an order ended after `seconds`: done, failed with a reason, refused, or not at all.
    `explain` is what people are told."""

    how: Literal["done", "failed", "refused", "forgotten"]
    seconds: float
    reason: str = ""
    explain: str = ""


class PowerSite(HeadClient):
    """A head, and a room of machines that it has brought up, or keeps off: those named in `off`."""

    def __init__(self, directory: Path, bays: Sequence[Bay], off: Sequence[str] = ()) -> None:
        super().__init__(directory / "head/api.sock", directory / "head.log")
        self.data, self.directory, self._off = directory / "head", directory, frozenset(off)
        self.namespace = HeadNamespace()
        self.room = MachineRoom(
            self.namespace.name,
            directory / "room",
            bays,
            self.namespace.address,
            self.data / "pki/ca.pem",
        )

    def __enter__(self) -> Self:
        self.namespace.up()
        try:
            for block in _LOCAL:
                subprocess.run(
                    ["ip", "-n", self.namespace.name, "route", "add", "local", block, "dev", "lo"],
                    check=True,
                )
            settings = {
                "socket": str(self.socket),
                "sync": {"hello_s": 1.0, "dead_s": 6.0, "probe_s": 2.0},
            }
            init(self.data, self.namespace.inside, settings)
            (self.data / "boot").mkdir()
            for name in ("vmlinuz", "minos.img"):  # no machine loads them
                (self.data / "boot" / name).write_bytes(b"-")
            self.room.__enter__()
            self.start_head()
            self.api(
                "POST",
                "/v1/inventory/apply",
                {"yaml": self._inventory(), "file": "room.yaml", "allow_remove": False},
            )
            self.wait(
                "all nodes are up, or off",
                lambda: all(n["status"] == "converged" for n in self.nodes().values()),
                240,
            )
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(signal.SIGTERM)
        self.room.__exit__()
        self.namespace.down()

    def _inventory(self) -> str:
        secret = self.data / "secrets/password"
        secret.parent.mkdir(mode=0o700, exist_ok=True)
        secret.touch(mode=0o600)
        secret.write_text(self.room.password)
        nodes = {}
        for b in self.room.bays.values():
            ipmi = b.kind == "ipmi"
            bmc = {
                "driver": b.kind,
                "username": "admin",
                "password": {"file": str(secret)},
                "address": b.bmc_address if ipmi else f"http://{b.bmc_address}:8000",
            }
            nodes[b.name] = {
                "mac": b.mac,
                "ip": b.ip,
                "state": "off" if b.name in self._off else "up",
                "boot_timeout": 40,
                "firmware": "bios" if ipmi else "uefi",
                "bmc": {**bmc, **({"timeout_s": b.timeout_s} if b.timeout_s else {})},
            }
        return yaml.safe_dump({"defaults": {"images": []}, "nodes": nodes}, sort_keys=False)

    # -- the head

    def start_head(self) -> None:
        """Starts the head's process; returns when it and its modules are ready."""
        argv = [
            *self.namespace.inside,
            sys.executable,
            "-m",
            "layercake.cli.main",
            "serve",
            "--data-dir",
            str(self.data),
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.serve(
            lambda log: subprocess.Popen(
                argv, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        )

    def kill_head(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def kill_powerman(self) -> int:
        """kill -9 of the power module's process; its id."""
        (pid,) = [
            int(s["pid"])
            for s in self.api("GET", "/v1/status")["services"]
            if s["name"] == "powerman"
        ]
        os.kill(pid, signal.SIGKILL)
        return pid

    # -- nodes and orders

    def nodes(self) -> dict[str, dict[str, Any]]:
        """All nodes by name."""
        return {n["name"]: n for n in self.api("GET", "/v1/nodes")["nodes"]}

    def explain(self, name: str) -> str:
        """What `node explain` says."""
        return str(self.api("GET", f"/v1/nodes/{name}/explain")["text"])

    def describe(self) -> str:
        """What one wants to read when a test fails."""
        try:
            texts = [
                self.explain(n) for n, view in self.nodes().items() if view["status"] != "converged"
            ]
            texts += [
                f"{e['at']:.1f} {e['node'] or '-'} {e['kind']} {e['text']}"
                for e in self.api("GET", "/v1/events?limit=80")["events"]
            ]
        except OSError as error:
            texts = [f"(the head does not answer: {error})"]
        crashes = [p.read_text() for p in (self.directory / "room").glob("*.crash")]
        return "\n".join([*texts, *crashes, self.log()[-2000:]])

    def order(self, order: Order, names: Sequence[str], *, force: bool = False) -> str:
        """Orders it of these nodes; why it was refused, "" if it was accepted."""
        try:
            self.api(
                "POST", "/v1/power", {"range": ",".join(names), "action": order, "force": force}
            )
        except HeadRunError as error:
            return str(error)
        return ""

    def newest(self) -> int:
        """The number of the newest event."""
        found = self.api("GET", "/v1/events?limit=1")["events"]
        return int(found[-1]["id"]) if found else 0

    def follow(
        self,
        orders: Mapping[str, Order],
        since: int,
        limit_s: float,
        watch: Callable[[], None] = lambda: None,
        was_off: Callable[[str], bool] = lambda name: False,
    ) -> dict[str, Outcome]:
        """How accepted orders end, by node; looks on for `limit_s` at most. `since`: the newest
        event before them. Of a head that is killed half a second after a cycle was seen, only the
        machine knows that it `was_off`."""
        began, found = time.monotonic(), dict[str, Outcome]()
        while len(found) < len(orders) and time.monotonic() - began < limit_s:
            watch()
            told = self.api("GET", f"/v1/events?since={since}&kind=power.&limit=5000")["events"]
            views = self.nodes()
            for name in orders.keys() - found.keys():
                kinds = {e["kind"]: e["text"] for e in told if e["node"] == name}
                how, reason = _judge(orders[name], views[name], kinds, was_off(name))
                if how is not None:
                    found[name] = Outcome(how, time.monotonic() - began, reason, self.explain(name))
            time.sleep(0.5)
        for name in orders.keys() - found.keys():
            found[name] = Outcome("forgotten", limit_s, "", self.explain(name))
        return found


def _judge(
    order: Order, view: Mapping[str, Any], told: Mapping[str, str], was_off: bool
) -> tuple[Literal["done", "failed"] | None, str]:
    """Whether an order is over, by what people can see of it."""
    if "power.order-failed" in told:
        return "failed", told["power.order-failed"]
    if view["status"] == "quarantined":
        return "failed", str(view["status_text"])
    there = view["status"] == "converged" and view["state"]["power"] == (
        "OFF" if order == "off" else "ON"
    )
    if order == "cycle" and "power.cycled" not in told and not was_off:
        there = False
    return ("done", "") if there else (None, "")
