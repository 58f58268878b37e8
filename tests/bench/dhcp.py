"""What one DHCP packet costs: our codec and decision against scapy, in turn in one run. `python -m tests.bench.dhcp`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from scapy.layers.dhcp import BOOTP, DHCP

from pxe.dhcp import packet as dhcp
from pxe.dhcp.decision import Common, decide
from pxe.nodes import Nodes, from_record
from pxe.windows import Windows
from tests.support.site import boot_settings

MAC = bytes.fromhex("525400000101")
ROUNDS, CALLS = 7, 400


def best_us(work: Callable[[], object]) -> float:
    """Microseconds a call, the best of several rounds: the rest of the machine only ever adds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            work()
        times.append((time.perf_counter() - start) / CALLS * 1e6)
    return min(times)


def main() -> None:
    nodes, windows = Nodes(), Windows()
    for number in range(1, 5001):
        mac = (0x525400000100 + number).to_bytes(6, "big")
        nodes.put(from_record(f"node-{number}", {"name": f"n{number}", "macs": [mac.hex(":")],
                                                 "ip": f"10.99.{number >> 8}.{number & 255}"}))
    windows.arm("node-1", "token-token", 1e4, 0.0)
    network = Common(boot_settings(prefix=16))
    options = [("message-type", "discover"), ("vendor_class_id", b"PXEClient:Arch:00007:UNDI:003001"), (93, b"\0\7"),
               (97, bytes(17)), ("param_req_list", list(range(1, 36))), "end"]
    raw = bytes(BOOTP(op=1, chaddr=MAC, xid=9) / DHCP(options=options))
    reply = decide(dhcp.parse(raw), nodes, windows, network, 1.0).reply
    assert reply is not None
    answer = dhcp.build(reply)
    fields = [(code, value) for code, value in reply.options.items() if code != 53]

    def scapy_build() -> bytes:
        return bytes(BOOTP(op=2, chaddr=MAC, xid=9, yiaddr="10.99.1.1", siaddr="10.99.0.1", file=b"snponly.efi")
                     / DHCP(options=[("message-type", "offer"), *fields, "end"]))

    figures = {
        "parse_us": best_us(lambda: dhcp.parse(raw)),
        "build_us": best_us(lambda: dhcp.build(reply)),
        "answer_us": best_us(lambda: dhcp.build(decide(dhcp.parse(raw), nodes, windows, network, 1.0).reply or reply)),
        "scapy_parse_us": best_us(lambda: BOOTP(raw)),
        "scapy_build_us": best_us(scapy_build),
    }
    figures["scapy_ratio"] = (figures["scapy_parse_us"] + figures["scapy_build_us"]) / (figures["parse_us"] + figures["build_us"])
    print(f"one DISCOVER of {len(raw)} bytes to an OFFER of {len(answer)}, {len(nodes)} nodes known")
    print(json.dumps({key: round(value, 2) for key, value in figures.items()}))


if __name__ == "__main__":
    main()
