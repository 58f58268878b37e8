"""ipmi_sim's chassis_control program: turns its questions into requests to the hypervisor.

Called as `chassis.py SOCKET NODE get|set|check NAME [VALUE] ...` (ipmi_sim_cmd(5)); answers
"name:value" lines on standard output. It is run for every power query, so it imports as little as
it can.
"""

import json
import socket
import sys


def ask(path: str, **request: str) -> "dict[str, str]":
    """One request to the hypervisor and its answer. Ends the program with status 1 if it says
    no."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(20)
        line.connect(path)
        line.sendall(json.dumps(request).encode() + b"\n")
        answer: dict[str, str] = json.loads(line.makefile().readline())
    if not answer["ok"]:
        sys.exit(1)
    return answer


def main(path: str, node: str, what: str, rest: "list[str]") -> int:
    """Carries out one call of ipmi_sim; 0 if all of it is understood."""
    if what == "check":
        return 0 if set(rest) <= {"power", "reset", "boot", "shutdown"} else 1
    if what == "get":
        state = ask(path, op="state", node=node)
        for name in rest:
            if name == "power":
                print("power:1" if state["power"] == "on" else "power:0")
            elif name == "boot":
                print("boot:" + (state["boot"] or "default"))
            else:
                return 1
        return 0
    for name, value in zip(rest[::2], rest[1::2], strict=True):
        if name == "power":
            ask(path, op="power", node=node, want="on" if value == "1" else "off")
        elif name == "reset":
            ask(path, op="power", node=node, want="reset")
        elif name == "shutdown":
            ask(path, op="power", node=node, want="soft")
        elif name == "boot":
            ask(path, op="boot", node=node, device=value)
        else:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
