"""1,000 machines that are switched on at once, through DHCP, TFTP, script, kernel and initramfs,
against dnsmasq with nginx, in turn in one run. `python -m tests.bench.storm`.

The machines are one process (tests.bench._storm), which needs more of the processor than the
servers; so what a server costs is told beside how fast it was. `ratio` is our bytes a second to
theirs, `cpu_ratio` their processor time to ours. `lost`: machines that did not come to the end. The
last line is one JSON object.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
from typing import Any

from tests.bench._lab import Lab, dnsmasq, figures, mac, need, nginx, run, until

NODES, MB, ROUNDS = 1000, 5, 3
PROGRAM_BYTES = 100_000


def one(lab: Lab, name: str) -> dict[str, Any]:
    """One storm: what came of it, and `cpu_s` of the servers."""
    with contextlib.ExitStack() as stack:
        if name == "ours":
            servers = [stack.enter_context(lab.ours(nodes=NODES))]
            servers[0].tell(do="arm", nodes=NODES)
        else:
            tftp = (
                "--enable-tftp",
                f"--tftp-root={lab.folder}/ipxe",
                f"--tftp-max={NODES * 2}",
                "--dhcp-match=set:ipxe,175",
                "--dhcp-boot=tag:ipxe,http://10.77.0.1:8080/boot/script",
                "--dhcp-boot=tag:!ipxe,undionly.kpxe",
            )
            servers = [
                stack.enter_context(lab.serving(*words))
                for words in (dnsmasq(lab.folder, NODES, *tftp), nginx(lab.folder))
            ]
            until(
                lambda: (
                    "200" in run(lab.there("curl", "-sI", "http://10.77.0.1:8080/boot/vmlinuz"))
                ),
                "nginx",
            )
            until(
                lambda: (
                    run(
                        lab.there(
                            "curl",
                            "-s",
                            "-o",
                            "/dev/null",
                            "-w",
                            "%{size_download}",
                            "tftp://10.77.0.1/undionly.kpxe",
                        )
                    )
                    == str(PROGRAM_BYTES)
                ),
                "dnsmasq",
            )
        before = sum(server.cpu_s() for server in servers)
        said = run(
            lab.there(sys.executable, "-m", "tests.bench._storm", json.dumps({"count": NODES})),
            400.0,
        )
        found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
        found["cpu_s"] = sum(server.cpu_s() for server in servers) - before
    print(
        f"{name}: {found['done']} of {NODES} in {found['seconds']:.1f} s, "
        f"{found['bytes'] / found['seconds'] / 1e6:.0f} MB/s, "
        f"{found['cpu_s']:.2f} CPU-s, {found['again']} asked again {found['failed'] or ''}",
        flush=True,
    )
    return found


def main() -> None:
    need("dnsmasq", "nginx")
    ours, theirs = list[dict[str, Any]](), list[dict[str, Any]]()
    with Lab() as lab:
        lab.addresses(NODES)
        boot = lab.boot_files(MB)
        (lab.folder / "ipxe" / "undionly.kpxe").write_bytes(os.urandom(PROGRAM_BYTES))
        for number in range(NODES):
            (boot / mac(number).replace(":", "-")).write_bytes(b"#!ipxe\n" + bytes(1000))
        for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS):
            for name, found in (("ours", ours), ("theirs", theirs))[:: 1 if number % 2 else -1]:
                found.append(one(lab, name))

    def middle(found: list[dict[str, Any]]) -> float:
        return statistics.median(float(each["bytes"] / each["seconds"]) / 1e6 for each in found)

    figures(
        nodes=NODES,
        mb_s=middle(ours),
        peer_mb_s=middle(theirs),
        ratio=statistics.median(
            a["bytes"] / a["seconds"] / (b["bytes"] / b["seconds"])
            for a, b in zip(ours, theirs, strict=True)
        ),
        cpu_s=statistics.median(each["cpu_s"] for each in ours),
        peer_cpu_s=statistics.median(each["cpu_s"] for each in theirs),
        cpu_ratio=statistics.median(
            b["cpu_s"] / a["cpu_s"] for a, b in zip(ours, theirs, strict=True)
        ),
        lost=sum(NODES - each["done"] for each in ours),
        peer_lost=sum(NODES - each["done"] for each in theirs),
    )


if __name__ == "__main__":
    main()
