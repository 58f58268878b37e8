"""One node's Redfish BMC: sushy-emulator with a driver that asks the hypervisor to switch the
machine.

    python -m vrack.redfish_bmc CONFIG.json

The configuration: {"address", "port", "socket", "node", "uuid", "mac", "firmware", "state_dir",
"auth_file", "certificate", "key"}.
"""

from __future__ import annotations

import json
import ssl
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flask
from sushy_tools import error as emulator_error
from sushy_tools.emulator import main as emulator
from sushy_tools.emulator.resources.systems import fakedriver

from vrack.client import HypervisorError, ask

_ACTIONS = {
    "On": "on",
    "ForceOn": "on",
    "ForceOff": "off",
    "GracefulShutdown": "soft",
    "GracefulRestart": "reset",
    "ForceRestart": "reset",
}


class MachineDriver(fakedriver.FakeDriver):  # type: ignore[misc]  # sushy-tools has no types
    """sushy-emulator's fake driver keeps the facts; power and boot device are the real
    machine's."""

    @property
    def driver(self) -> str:
        """What sushy-emulator shows as its backend."""
        return "<vrack>"

    def _ask(self, **request: str) -> dict[str, Any]:
        try:
            return ask(
                self._config["VRACK_SOCKET"], {"node": self._config["VRACK_NODE"], **request}
            )
        except (HypervisorError, OSError) as problem:
            raise emulator_error.FishyError(f"cannot reach the machine: {problem}") from problem

    def get_power_state(self, identity: str) -> str:
        """On or Off, as the machine's process is."""
        self._get(identity)
        return "On" if self._ask(op="state")["power"] == "on" else "Off"

    def set_power_state(self, identity: str, state: str) -> None:
        """Switches the machine. Raises NotSupportedError for Nmi and the like."""
        self._get(identity)
        if state not in _ACTIONS:
            raise emulator_error.NotSupportedError(f"reset type {state} is not supported")
        medium, _, _ = self.get_boot_image(identity, "Cd")
        self._ask(op="power", want=_ACTIONS[state], medium=medium or "")

    def get_boot_device(self, identity: str) -> str:
        """The boot device for the next start; a machine of the rack has its network, and what is in
        its virtual drive."""
        self._get(identity)
        return str(self._ask(op="state")["boot"]) or "Pxe"

    def set_boot_device(self, identity: str, boot_source: str) -> None:
        """Keeps the boot device for the next start."""
        self._get(identity)
        self._ask(op="boot", device=boot_source)

    def boot_by_uri(self, identity: str, uri: str) -> None:
        """Keeps the URI that the firmware fetches at the next start."""
        self._get(identity)
        self._ask(op="boot", device="UefiHttp", uri=uri)

    def get_http_boot_uri(self, identity: str) -> str:
        """That URI, "" if none is set."""
        self._get(identity)
        return str(self._ask(op="state").get("uri", ""))


def _with_uris(plain: Callable[[str], Any]) -> Callable[[str], Any]:
    """sushy-emulator's view of a system, which would fetch an HttpBootUri itself and show it to the
    machine as a CD. Here it is the firmware's to fetch (ComputerSystem.Boot, DSP0268)."""

    def system_resource(identity: str) -> Any:
        said = flask.request.get_json(silent=True) if flask.request.method == "PATCH" else None
        boot = (said or {}).get("Boot") or {}
        if boot.get("BootSourceOverrideTarget") != "UefiHttp" or not boot.get("HttpBootUri"):
            return plain(identity)
        systems = emulator.app.systems
        if (
            systems.get_boot_mode(identity) != "UEFI"
            or boot.get("BootSourceOverrideMode", "UEFI") != "UEFI"
        ):
            return "UefiHttp is for UEFI", 400
        systems.boot_by_uri(identity, str(boot["HttpBootUri"]))
        return "", 204

    return system_resource


def main(path: Path) -> int:
    """Serves until it is killed."""
    config = json.loads(path.read_text())
    emulator.app.view_functions["system_resource"] = _with_uris(
        emulator.app.view_functions["system_resource"]
    )
    tempfile.tempdir = config["state_dir"]  # for the media that it fetches
    fakedriver.FakeDriver = MachineDriver
    mode = "UEFI" if config["firmware"] == "uefi" else "Legacy"
    emulator.app.configure(
        extra_config={
            "VRACK_SOCKET": config["socket"],
            "VRACK_NODE": config["node"],
            "SUSHY_EMULATOR_FAKE_DRIVER": True,
            "SUSHY_EMULATOR_FAKE_SYSTEMS": [
                {
                    "uuid": config["uuid"],
                    "name": config["node"],
                    "boot_mode": mode,
                    "nics": [{"mac": config["mac"]}],
                }
            ],
            "SUSHY_EMULATOR_STATE_DIR": config["state_dir"],
            "SUSHY_EMULATOR_FEATURE_SET": "full",
            **({"SUSHY_EMULATOR_AUTH_FILE": config["auth_file"]} if config["auth_file"] else {}),
        }
    )
    context = None
    if config["certificate"]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(config["certificate"], config["key"])
    emulator.app.run(
        host=config["address"], port=config["port"], ssl_context=context, threaded=True
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
