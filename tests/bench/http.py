"""HTTP: what a gigabyte of boot files and a boot script cost, against nginx, in turn in one run.
`python -m tests.bench.http`.

50 nodes fetch 50 MB each at once, and 1,000 their script, which nginx has as a file; all by
connections of their own. `ratio` is nginx's processor time for a gigabyte to ours, `script_ms` the
processor's milliseconds for a script. The last line is one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

from tests.bench._lab import Lab, Server, figures, mac, need, nginx, run, until

FILES = 50
MB = 50
SCRIPTS = 1000
ROUNDS = 5
PORT = 8080


def fetched(lab: Lab, kind: str, **words: Any) -> dict[str, Any]:
    """What came of so many fetches. All must come."""
    found: dict[str, Any] = json.loads(
        run(lab.there(sys.executable, "-m", "tests.bench._fetch", kind, json.dumps(words)))
    )
    if found["done"] != words["count"]:
        raise SystemExit(f"not all was fetched: {found}")
    return found


def files(lab: Lab, server: Server, *, ours: bool) -> float:
    """Seconds of the processor for a gigabyte."""
    if ours:
        server.tell(do="arm", nodes=FILES)
    before = server.cpu_s()
    size = float(
        fetched(lab, "http", count=FILES, path="/boot/minos.img", port=PORT, at_once=FILES)["bytes"]
    )
    return (server.cpu_s() - before) / size * 1e9


def scripts(lab: Lab, server: Server, *, ours: bool) -> float:
    """Milliseconds of the processor for a boot script."""
    if ours:
        server.tell(do="arm", nodes=SCRIPTS, asked=True)
    before = server.cpu_s()
    fetched(lab, "http", count=SCRIPTS, path="/boot/{mac}", port=PORT, at_once=50)
    return (server.cpu_s() - before) / SCRIPTS * 1000


def main() -> None:
    need("nginx")
    per_gb: dict[str, list[float]] = {"ours": [], "nginx": []}
    script: dict[str, list[float]] = {"ours": [], "nginx": []}
    with Lab() as lab:
        lab.addresses(SCRIPTS)
        boot = lab.boot_files(MB)
        for number in range(SCRIPTS):
            (boot / mac(number).replace(":", "-")).write_bytes(b"#!ipxe\n" + bytes(1000))
        for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS):
            for name in ("ours", "nginx") if number % 2 else ("nginx", "ours"):
                ours = name == "ours"
                with lab.ours(nodes=SCRIPTS) if ours else lab.serving(*nginx(lab.folder)) as server:
                    if not ours:
                        until(
                            lambda: (
                                "200"
                                in run(
                                    lab.there(
                                        "curl", "-sI", f"http://10.77.0.1:{PORT}/boot/vmlinuz"
                                    )
                                )
                            ),
                            "nginx",
                        )
                    scripts(lab, server, ours=ours)
                    script[name].append(scripts(lab, server, ours=ours))
                    per_gb[name].append(files(lab, server, ours=ours))
                print(
                    f"{name}: {per_gb[name][-1]:.3f} CPU-s/GB, {script[name][-1]:.3f} ms a script",
                    flush=True,
                )
    middle = {name: statistics.median(values) for name, values in per_gb.items()}
    figures(
        cpu_s_gb=middle["ours"],
        nginx_cpu_s_gb=middle["nginx"],
        ratio=statistics.median(
            b / a for a, b in zip(per_gb["ours"], per_gb["nginx"], strict=True)
        ),
        script_ms=statistics.median(script["ours"]),
        nginx_script_ms=statistics.median(script["nginx"]),
    )


if __name__ == "__main__":
    main()
