"""What a switch says of itself on one of its ports, by LLDP (IEEE 802.1AB), each second.

python switchport.py INTERFACE SWITCH PORT
"""

from __future__ import annotations

import socket
import sys
import time

NEAREST_BRIDGE, ETHERTYPE = bytes.fromhex("0180c200000e"), bytes.fromhex("88cc")
LOCAL, INTERFACE_NAME = b"\x07", b"\x05"


def _tlv(kind: int, value: bytes) -> bytes:
    return (kind << 9 | len(value)).to_bytes(2, "big") + value


def frame(switch: str, port: str, mac: bytes = b"\x52\x54\x00\x00\x00\xfe") -> bytes:
    """One LLDPDU: chassis, port, how long it holds, and the switch's name."""
    said = (
        _tlv(1, LOCAL + switch.encode()),
        _tlv(2, INTERFACE_NAME + port.encode()),
        _tlv(3, (120).to_bytes(2, "big")),
        _tlv(5, switch.encode()),
        _tlv(0, b""),
    )
    return NEAREST_BRIDGE + mac + ETHERTYPE + b"".join(said)


def main() -> None:
    """Until it is ended. An interface that is down is tried again."""
    interface, switch, port = sys.argv[1:4]
    data = frame(switch, port)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as card:
        card.bind((interface, 0))
        while True:
            try:
                card.send(data)
            except OSError as error:
                print(f"{interface}: {error}", file=sys.stderr)
            time.sleep(1)


if __name__ == "__main__":
    main()
