"""A head and pretended nodes on this machine, each in a network namespace of its own: for tests and
benchmarks that need many real agents and no machines. The head is a process that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from headclient import HeadClient
from headinit import init
from hostnode import HeadNamespace, HostNode, ask_for_token

from imageapi.settings import ImageSettings
from layercake.agents.settings import SyncSettings
from layercake.modules.declared import SiteModule

ROOT = Path(__file__).resolve().parents[1]
OVER = ("done", "failed", "aborted", "paused")


class HostSite(HeadClient):
    """So many nodes, h0 and on. `up` returns when each is in sync and runs the first image, if
    there are images.

    `modules` are the site's own, `python` is the interpreter that the head runs in. `code` is where
    the head's Layercake is, `environment` what its process is given beside the usual."""

    def __init__(
        self,
        directory: Path,
        count: int,
        images: dict[str, Path],
        *,
        sync: SyncSettings | None = None,
        store: ImageSettings | None = None,
        groups: Sequence[str] = (),
        modules: Mapping[str, SiteModule] | None = None,
        python: str = sys.executable,
        logs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            directory / "head/api.sock", directory / "head.log", without=(modules or {}).keys()
        )
        self.directory = directory
        self.data = directory / "head"
        self.namespace = HeadNamespace()
        self.images = images
        self.groups = groups
        self.nodes = [
            HostNode(self.namespace, f"h{i}", 10 + i, directory / f"h{i}") for i in range(count)
        ]
        self._sync = sync or SyncSettings(hello_s=1.0, dead_s=4.0, probe_s=1.0)
        self._store = store or ImageSettings()
        self._modules = dict(modules or {})
        self._logs = dict(logs or {})
        self._python = python
        self.code = ROOT
        self.environment: dict[str, str] = {}

    # -- life

    def up(self) -> None:
        """From nothing to all nodes running the first image."""
        self.begin()
        self.wait(
            "all nodes run",
            lambda: all(n["status"] == "converged" for n in self.states().values()),
            120,
        )

    def begin(self) -> None:
        """Starts the head and the nodes' agents."""
        self.namespace.up()
        settings = {
            "socket": str(self.socket),
            "sync": self._sync,
            "images": self._store,
            "modules": self._modules,
            **({"logs": self._logs} if self._logs else {}),
        }
        init(self.data, self.namespace.inside, msgspec.to_builtins(settings), python=self._python)
        (self.data / "boot").mkdir()
        self.start_head()
        for name, path in self.images.items():
            self.api(
                "POST",
                "/v1/images",
                {
                    "path": str(path),
                    "name": name,
                    "systemd": False,
                    "command": ["/init"],
                    "stop_timeout_s": 2.0,
                },
            )
        self.apply(next(iter(self.images), ""))
        for node in self.nodes:
            self.start_node(node)

    def inventory(self, image: str) -> str:
        """The inventory. Node i is in groups[i] if there is one."""
        groups = {i: f"[{name}]" for i, name in enumerate(self.groups)}
        lines = [
            f"  {n.name}: {{mac: '{n.mac}', ip: {n.ip}, images: [{image}], groups: "
            f"{groups.get(i, '[]')}}}"
            for i, n in enumerate(self.nodes)
        ]
        known = ", ".join(f"{name}: {{}}" for name in dict.fromkeys(self.groups))
        return "\n".join([f"groups: {{{known}}}", "nodes:", *lines])

    def apply(self, image: str) -> None:
        """Wants an image of all nodes by the inventory."""
        self.api(
            "POST",
            "/v1/inventory/apply",
            {"yaml": self.inventory(image), "file": "site.yaml", "allow_remove": False},
        )

    def start_head(self) -> None:
        """Starts the head's process; returns when it answers."""
        argv = [
            *self.namespace.inside,
            self._python,
            str(ROOT / "vm-testbed/hosthead.py"),
            str(self.data),
            str(self.code),
        ]
        environment = {**os.environ, "PYTHONPATH": str(self.code), **self.environment}
        self.serve(
            lambda log: subprocess.Popen(
                argv,
                cwd=self.code,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        )

    def start_node(self, node: HostNode) -> None:
        """Boots a node: starts its agent with a token that was not used before."""
        path = ask_for_token(self.data, node.name)
        self.wait("a token", path.exists, 120)
        address = self.namespace.address
        known = self.states()[node.name]["id"]
        node.start(
            known,
            path.read_text(),
            f"https://{address}:8443",
            self.data / "pki/ca.pem",
            f"{address}:{self.sync_port}",
        )

    @property
    def sync_port(self) -> int:
        """The UDP port of state sync."""
        return self._sync.port

    def stop_head(self) -> None:
        """Stops the head in an orderly way."""
        self._end(signal.SIGTERM)

    def written(self) -> None:
        """Waits until what the head has told so far is on its disk: half a second of it is lost by
        a kill."""
        newest = max(int(e["id"]) for e in self.api("GET", "/v1/events?limit=5")["events"])
        self.wait("all events are written", lambda: self._kept() >= newest, 120)

    def _kept(self) -> int:
        """The newest event in the database."""
        with contextlib.closing(
            sqlite3.connect(f"file:{self.data / 'layercake.db'}?mode=ro", uri=True)
        ) as db:
            query = "SELECT max(id) FROM (SELECT id FROM events UNION ALL SELECT id FROM alarms)"
            return int(db.execute(query).fetchone()[0] or 0)

    def kill_head(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def down(self) -> None:
        """All away."""
        for node in self.nodes:
            node.stop()
        self._end(signal.SIGTERM)
        self.namespace.down()

    # -- talking to the head

    def states(self) -> dict[str, dict[str, Any]]:
        """All nodes by name."""
        return {n["name"]: n for n in self.api("GET", "/v1/nodes")["nodes"]}

    def running(self) -> dict[str, str]:
        """The image that each node runs, "" if none."""
        return {
            name: (n["images"]["running"] or [{"name": ""}])[0]["name"]
            for name, n in self.states().items()
        }

    def roll(self, text: str, image: str, **options: Any) -> int:
        """Begins a roll; its number."""
        return int(
            self.api(
                "POST", "/v1/rolls", {"range": text, "image": image, "by": "a test", **options}
            )["roll"]["id"]
        )

    def show(self, number: int) -> dict[str, Any]:
        """A roll with its nodes."""
        found: dict[str, Any] = self.api("GET", f"/v1/rolls/{number}")["roll"]
        return found

    def until_over(self, number: int, limit_s: float = 180.0) -> dict[str, Any]:
        """Waits until a roll is over or paused."""
        self.wait(f"roll {number} is over", lambda: self.show(number)["state"] in OVER, limit_s)
        return self.show(number)

    def describe(self) -> str:
        """The nodes, the rolls and the newest events: what one wants to read when a test fails."""
        try:
            nodes = [
                f"{n['name']} {n['status']} {n['status_text']} {n['state']} {n['images']}"
                for n in self.states().values()
            ]
            rolls = [json.dumps(r) for r in self.api("GET", "/v1/rolls?limit=3")["rolls"]]
            found = self.api("GET", "/v1/events?limit=60")["events"]
            events = [f"{e['at']:.2f} {e['node'] or '-'} {e['kind']} {e['text']}" for e in found]
        except OSError as error:
            nodes, rolls, events = [f"(the head does not answer: {error})"], [], []
        logs = [
            f"--- {n.name}\n{n.log()[-600:]}"
            for n in self.nodes
            if (n.directory / "agent.log").exists()
        ]
        return "\n".join([*nodes, *rolls, *events, "--- head", self.log()[-2000:], *logs])
