"""TFTP: what a megabyte costs, against dnsmasq, in turn in one run. `python -m tests.bench.tftp`.

50 nodes fetch the boot program of 1 MB at once, in blocks of 1468 bytes: each acknowledged (window
1), and by windows of 16 blocks (RFC 7440), which dnsmasq has not. `ratio` is dnsmasq's processor
time for a megabyte to ours, both at window 1. The last line is one JSON object.
"""

from __future__ import annotations

import statistics
import sys

from tests.bench._lab import Lab, Server, dnsmasq, figures, need, run, until
from tests.bench.http import fetched

CLIENTS, ROUNDS, TIMES = 50, 5, 3
PROGRAM = "undionly.kpxe"


def ms_mb(lab: Lab, server: Server, window: int) -> float:
    """Milliseconds of the processor for a megabyte."""
    before, size = server.cpu_s(), 0.0
    for _ in range(TIMES):
        size += float(
            fetched(
                lab, "tftp", count=CLIENTS, path=PROGRAM, port=69, at_once=CLIENTS, window=window
            )["bytes"]
        )
    return (server.cpu_s() - before) * 1000 / (size / 1e6)


def main() -> None:
    need("dnsmasq")
    one: dict[str, list[float]] = {"ours": [], "dnsmasq": []}
    sixteen = []
    with Lab() as lab:
        lab.addresses(CLIENTS)
        lab.boot_files(1)
        for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS):
            for name in ("ours", "dnsmasq") if number % 2 else ("dnsmasq", "ours"):
                peer = dnsmasq(
                    lab.folder,
                    1,
                    "--enable-tftp",
                    f"--tftp-root={lab.folder}/ipxe",
                    f"--tftp-max={CLIENTS * 2}",
                )
                with lab.ours(nodes=CLIENTS) if name == "ours" else lab.serving(*peer) as server:
                    if name == "ours":
                        server.tell(do="arm", nodes=CLIENTS)
                    else:
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
                                        f"tftp://10.77.0.1/{PROGRAM}",
                                    )
                                )
                                == "1000000"
                            ),
                            "dnsmasq",
                        )
                    one[name].append(ms_mb(lab, server, 1))
                    if name == "ours":
                        sixteen.append(ms_mb(lab, server, 16))
                more = f", {sixteen[-1]:.2f} by windows" if name == "ours" else ""
                print(f"{name}: {one[name][-1]:.2f} ms/MB{more}", flush=True)
    figures(
        ms_mb=statistics.median(one["ours"]),
        dnsmasq_ms_mb=statistics.median(one["dnsmasq"]),
        ratio=statistics.median(b / a for a, b in zip(one["ours"], one["dnsmasq"], strict=True)),
        window16_ms_mb=statistics.median(sixteen),
        window16_ratio=statistics.median(
            b / a for a, b in zip(sixteen, one["dnsmasq"], strict=True)
        ),
    )


if __name__ == "__main__":
    main()
