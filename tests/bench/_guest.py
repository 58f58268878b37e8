"""Runs a Python script as the first program of a virtual machine that can reach a real Ceph: what
the benchmarks of krbd need.

The machine's kernel, its Python and our code in it are those of minOS; only the agent is replaced
by the script.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from cephrun import POOL, Ceph
from guest import ADDRESS, HEAD, MAC, Guest
from headrun import CACHE

from imageapi.store.rbdstore import Cluster, RbdContent
from imageapi.store.store import ImageStore
from minos.build import BuildOptions, build, python
from minos.build.archives import cpio

RESULT = "BENCH-RESULT "
HEADER = f"""#!{python.own()} -ISB
import sys
sys.path.insert(0, "/usr/lib/minos.zip")
from minos.init import prepare
prepare()
"""


@dataclass(frozen=True, slots=True)
class Lab:
    """A guest, a cluster, and a store over it."""

    directory: Path
    guest: Guest
    ceph: Ceph
    store: ImageStore

    def push(self, path: Path, name: str) -> dict[str, Any]:
        """Puts an image into the store; its document, as a node gets it."""
        with self.guest.inside():
            image = self.store.add(path, name, {})
        found = self.store.attachment(image.digest)
        if found is None:
            raise SystemExit("the image is not in the cluster")
        return {
            "name": name,
            "digest": image.digest,
            "size": image.size,
            "url": "http://10.99.0.1:9/none",
            "container": image.container.to_wire(),
            "attach": found.attach,
            "verity": found.verity,
        }

    def run(self, script: str, parameters: dict[str, Any], limit_s: float) -> Any:
        """Boots the guest into a script, which finds `parameters` in /etc/bench.json; what it
        printed after RESULT."""
        built = build(BuildOptions(self.directory / "minos", CACHE, compression="none"))
        parameters = {**parameters, "key": self.store.secret(f"ceph-{POOL}")}
        extra = cpio.archive(
            {
                "init": cpio.regular((HEADER + script).encode(), 0o755),
                "etc/bench.json": cpio.regular(json.dumps(parameters).encode(), 0o600),
            }
        )
        data = built.image.read_bytes()
        image = self.directory / "bench.img"
        image.write_bytes(data + b"\0" * (-len(data) % 4) + extra)
        words = {
            "node": "7f0c6b0e-0000-4000-8000-000000000001",
            "name": "bench",
            "mac": MAC,
            "ip": f"{ADDRESS}/24",
            "head": f"https://{HEAD}:1",
            "sync": f"{HEAD}:1",
            "token": "none",
        }
        self.guest.start(built.vmlinuz, image, words)
        return self._result(lambda: self.guest.console(), limit_s)

    def _result(self, console: Callable[[], str], limit_s: float) -> Any:
        end = time.monotonic() + limit_s
        while time.monotonic() < end and self.guest.alive:
            lines = [
                line for line in console().splitlines(keepends=True) if line.startswith(RESULT)
            ]
            if lines and lines[-1].endswith("\n"):
                return json.loads(lines[-1].removeprefix(RESULT))
            time.sleep(0.2)
        raise SystemExit(f"the guest gave no result in {limit_s:.0f} s:\n{console()[-3000:]}")


@contextmanager
def lab() -> Iterator[Lab]:
    """Everything up, and away again."""
    with tempfile.TemporaryDirectory(prefix="layercake-bench-") as scratch:
        directory = Path(scratch)
        with (
            Guest(directory / "guest") as guest,
            Ceph(directory / "ceph", HEAD, guest.enter, memory_mb=8192) as ceph,
        ):
            cluster = Cluster(
                str(ceph.conf),
                str(ceph.keyring("layercake")),
                POOL,
                node_keyring=str(ceph.keyring("node")),
            )
            yield Lab(
                directory,
                guest,
                ceph,
                ImageStore(directory / "store", content=RbdContent(directory / "store", cluster)),
            )
