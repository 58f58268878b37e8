"""What ipmi_sim needs to be one node's BMC. Plain text made from facts; starting it is the
hypervisor's work."""

from __future__ import annotations

import shlex
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from vrack.spec import USERNAME

# One management controller with a System Event Log and one temperature sensor (a threshold sensor
# named CPUTemp, degrees C).
_EMULATOR = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0xbf 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
sensor_add 0x20 0 1 1 1
sensor_set_value 0x20 0 1 0x2d 0
sensor_set_threshold 0x20 0 1 settable 111000 0x0 0x0 0x0 0x50 0x5a 0x64
sensor_set_event_support 0x20 0 1 enable scanning per-state \\
    000111111000000 000111111000000 000111111000000 000111111000000
main_sdr_add 0x20 \\
    0x00 0x00 0x51 0x01 0x32   0x20 0x00 0x01 0x03 0x01 0x67 0x48 0x01 0x01 0xc0 \\
    0x7f 0xc0 0x7f 0x3f 0x3f   0x00 0x01 0x00 0x00 0x01 0x00 0x00 0x00 0x00 0x00 \\
    0x00 0x20 0x40 0x10 0xff 0x00   0x64 0x5a 0x50 0x00 0x00 0x00 0x01 0x01 0x00 0x00 \\
    0x00 0xc7 'C' 'P' 'U' 'T' 'e' 'm' 'p'
mc_enable 0x20
"""


# What ipmi_sim asks for its LAN parameters: PROGRAM get|check NAME..., set NAME VALUE...; each is a
# file beside it.
_LAN = """\
#!/bin/sh
d=$(dirname "$0"); what=$1; shift
case $what in
get) for name; do printf '%s:%s\\n' "$name" "$(cat "$d/$name" 2>/dev/null || echo 0.0.0.0)"; done;;
set) while [ $# -gt 1 ]; do echo "$2" > "$d/$1"; shift 2; done;;
esac
"""


def write_config(
    directory: Path,
    name: str,
    address: str,
    port: int,
    password: str,
    chassis: Sequence[str],
    *,
    inband: int = 0,
    lan: Mapping[str, str] | None = None,
    sol: str = "",
) -> list[str]:
    """Writes the configuration into `directory` and returns the argv that runs the BMC.

    `chassis` is the program that ipmi_sim calls to switch the machine; without one it keeps a state
    in its head. `inband` is the TCP port at which the machine itself finds its BMC, 0 for none. It
    says `lan` of its LAN parameters, by ipmi_sim's names for them: its address if nothing is given.
    `sol` is the serial port that it has by LAN, "" for none. The state directory is emptied: sensor
    records that an earlier run left there pile up. The configuration holds the password, so only
    its owner may read it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    state = directory / "state"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir()
    parameters = directory / "lan"
    parameters.mkdir(exist_ok=True)
    said = {"ip_addr": address, "ip_addr_src": "static"} if lan is None else lan
    for word, text in {"program": _LAN, **said}.items():
        (parameters / word).write_text(text)
    (parameters / "program").chmod(0o755)
    config = directory / "lan.conf"
    config.touch(mode=0o600)
    config.write_text(
        "\n".join(
            [
                f'name "{name}"',
                "set_working_mc 0x20",
                "  startlan 1",
                f"    addr {address} {port}",
                "    priv_limit admin",
                f'    lan_config_program "{parameters}/program"',
                *(
                    f"    allowed_auths_{role} none md2 md5 straight"
                    for role in ("callback", "user", "operator", "admin")
                ),
                f"    guid {uuid.uuid5(uuid.NAMESPACE_OID, name + address).hex}",
                "  endlan",
                *([f"  serial 15 {address} {inband} codec VM"] if inband else []),
                *([f'  sol "{sol}" 115200'] if sol else []),
                *([f'  chassis_control "{shlex.join(chassis)}"'] if chassis else []),
                "  startnow false",
                f'  user 2 true "{USERNAME}" "{password}" admin 10 none md2 md5 straight',
                "",
            ]
        )
    )
    emulator = directory / "bmc.emu"
    emulator.write_text(_EMULATOR)
    return ["ipmi_sim", "-c", str(config), "-f", str(emulator), "-s", str(state), "-n"]
