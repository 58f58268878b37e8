"""Rolls of a small cluster: eight agents on this host, each in its own namespaces, and four VMs of
the rack, under one head.

Each roll is staged on every node, then all switch at once (`POST /v1/rolls` with a gate of no
time). Per node: from the order to switch to the datagram that says ACTIVE, both on the head's
clock, and the gap, which the node measures itself. `total` is from the request to the end of the
roll, staging included. `ratio` is that of the four VMs to the same switch by bare commands on them.

Then the head goes over to a real Ceph, and the VMs roll between images in it. This host's kernel
has no RBD, so the agents on it take no part in that; `file_*` are figures of the same four VMs, so
that the stores stand side by side. Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

import yaml
from cephrun import POOL, CephRun
from headrun import ROOT, HeadRun
from hostnode import HeadNamespace, HostNode, ask_for_token
from sampleimages import plain_image
from vrack.rack import Rack

from tests.bench._bareroll import switches
from tests.bench._history import median, quantile
from tests.bench.roll import figures

HOSTS, MACHINES = 8, 4
FIRST_ADDRESS = 100
ROLLS = 6
GATHERED_S = 0.6
OVER = ("done", "failed", "aborted", "paused")


class Cluster(HeadRun):
    """A head over the rack's machines and pretended nodes in the same network."""

    def __init__(self, rack: Rack, directory: Path) -> None:
        super().__init__(rack, directory / "head")
        namespace = HeadNamespace("10.99.0.1")
        namespace.name = rack.namespace
        self.hosts = [
            HostNode(namespace, f"h{i}", FIRST_ADDRESS + i, directory / f"h{i}")
            for i in range(HOSTS)
        ]

    def start(self, limit_s: float = 30.0) -> None:
        """Starts the head that also gives tokens to nodes without firmware."""
        self.configure({})
        command = [sys.executable, str(ROOT / "vm-testbed/hosthead.py"), str(self.data)]
        self.serve(
            lambda log: self.rack.exec(
                command, env=self.environment, cwd=ROOT, stdout=log, stderr=log
            ),
            limit_s,
        )

    def add(self, name: str) -> None:
        """A plain image."""
        body = {
            "path": str(plain_image(name)),
            "name": name,
            "systemd": False,
            "command": ["/init"],
        }
        self.api("POST", "/v1/images", body)

    def up(self, image: str) -> None:
        """All nodes, from nothing to that image."""
        inventory = yaml.safe_load(self.rack.inventory(images=[image]))
        for host in self.hosts:
            inventory["nodes"][host.name] = {"mac": host.mac, "ip": host.ip}
        self.apply(yaml.safe_dump(inventory))
        for host in self.hosts:
            path = ask_for_token(self.data, host.name)
            self.wait("a token", path.exists, 10)
            node = self.nodes()[host.name]["id"]
            host.start(
                node,
                path.read_text(),
                "https://10.99.0.1:8443",
                self.data / "pki/ca.pem",
                "10.99.0.1:31415",
            )
        self.wait_converged(400)

    def roll(
        self, text: str, names: list[str], image: str
    ) -> tuple[float, dict[str, tuple[float, float]]]:
        """One roll: seconds of all of it, and of each node (seconds, gap in ms)."""
        since = {name: max(e["id"] for e in self.history(name)) for name in names}
        start = time.monotonic()
        asked = {"range": text, "image": image, "batch": "100%", "health_timeout_s": 0.0}
        number = self.api("POST", "/v1/rolls", asked)["roll"]["id"]
        self.wait(
            "the roll is over",
            lambda: self.api("GET", f"/v1/rolls/{number}?nodes=none")["roll"]["state"] in OVER,
            120,
        )
        total = time.monotonic() - start
        told = self.api("GET", f"/v1/rolls/{number}")["roll"]
        if told["counts"] != {"done": len(names)}:
            raise SystemExit(f"the roll failed: {json.dumps(told)}\n{self.describe()}")
        time.sleep(GATHERED_S)
        found = {}
        for name in names:
            seconds, gaps = figures([e for e in self.history(name) if e["id"] > since[name]])
            if len(seconds) != 1 or len(gaps) != 1:
                raise SystemExit(f"{name} has {seconds} and {gaps}\n{self.history(name)[-12:]}")
            found[name] = (seconds[0], gaps[0])
        return total, found

    def close(self) -> None:
        """Everything away."""
        for host in self.hosts:
            host.stop()
        super().close()


def summary(
    prefix: str, runs: list[tuple[float, dict[str, tuple[float, float]]]], names: set[str]
) -> dict[str, float]:
    """The figures of some of the nodes over all rolls."""
    seconds = [v[0] for _, found in runs for name, v in found.items() if name in names]
    gaps = [v[1] for _, found in runs for name, v in found.items() if name in names]
    return {
        f"{prefix}_p50_s": round(median(seconds), 3),
        f"{prefix}_p99_s": round(quantile(seconds, 0.99), 3),
        f"{prefix}_gap_p50_ms": round(median(gaps), 1),
        f"{prefix}_gap_p99_ms": round(quantile(gaps, 0.99), 1),
    }


def with_ceph(cluster: Cluster, ceph: CephRun) -> None:
    """The head goes over to the cluster; what the nodes run stays."""
    cluster.stop()
    cluster.configure(
        {
            "images": {
                "store": "rbd",
                "conf": str(ceph.conf),
                "keyring": str(ceph.keyring("layercake")),
                "pool": POOL,
                "node_keyring": str(ceph.keyring("node")),
            }
        }
    )
    cluster.start()
    cluster.wait_converged(60)


def bench(directory: Path, rolls: int, rbd: bool) -> dict[str, Any]:
    """Brings it all up, rolls, and takes it down again."""
    rack = Rack(directory / "rack", MACHINES)
    cluster = Cluster(rack, directory)
    machines = [f"n{i}" for i in range(MACHINES)]
    hosts = [h.name for h in cluster.hosts]
    found: dict[str, Any] = {"rolls": rolls, "hosts": HOSTS, "machines": MACHINES}
    try:
        rack.up()
        cluster.init()
        cluster.start()
        for name in ("plain-1", "plain-2"):
            cluster.add(name)
        cluster.up("plain-1")
        runs = [
            cluster.roll("@all", [*machines, *hosts], ("plain-2", "plain-1")[i % 2])
            for i in range(rolls)
        ]
        found |= {"total_p50_s": round(median([total for total, _ in runs]), 2)} | summary(
            "host", runs, set(hosts)
        )
        runs = [
            cluster.roll("n[0-3]", machines, ("plain-2", "plain-1")[i % 2]) for i in range(rolls)
        ]
        bare = median(switches(cluster, machines, rolls))
        found |= {
            "bare_p50_s": round(bare, 3),
            "ratio": round(summary("", runs, set(machines))["_p50_s"] / bare, 2),
        }
        found |= {"file_total_p50_s": round(median([total for total, _ in runs]), 2)} | summary(
            "file", runs, set(machines)
        )
        if rbd:
            with CephRun(rack) as ceph:
                with_ceph(cluster, ceph)
                for name in ("ceph-1", "ceph-2"):
                    cluster.add(name)
                cluster.roll("n[0-3]", machines, "ceph-2")  # from a file: not counted
                runs = [
                    cluster.roll("n[0-3]", machines, ("ceph-1", "ceph-2")[i % 2])
                    for i in range(rolls)
                ]
                found |= {
                    "rbd_total_p50_s": round(median([total for total, _ in runs]), 2)
                } | summary("rbd", runs, set(machines))
        return found
    finally:
        cluster.close()
        rack.down()


def main() -> None:
    """Runs it and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rolls", type=int, default=ROLLS)
    parser.add_argument("--no-rbd", action="store_true", help="the file store only")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="layercake-bench-"))
    try:
        print(json.dumps(bench(directory, options.rolls, not options.no_rbd)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
