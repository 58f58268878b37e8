"""A throw-away head for a simulated fleet: a directory of its own, settings, images and boot sets,
and its process."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from imageapi.store.manifest import Signer
from layercake.agents import pki
from layercake.head import settings as head_settings
from layercake.heads.settings import DIRECTORY, KEY, KEY_BYTES
from layercake.inventory.structs import place_of
from layercake.kraken.errors import OperationFailed
from layercake.sim.api import Api
from layercake.sim.inventory import SimulatedSite
from minos.build import sets
from minos.build.profiles import Profile, of
from powerman.drivers.sim import SOCKET as BMCS

SOCKET = "api.sock"
LOG = "head.log"
INTERFACE = "lo"
_STARTS_S = 120.0
_STOPS_S = 60.0
_ALL_FILES = ("vmlinuz", "minos.img")
_DEFAULT_SETS = 2
_OWN = (
    "interface",
    "socket",
    "socket_group",
    "access",
    "oidc",
    "slurm",
    "secrets",
    "modules",
    "more_networks",
    "api_listen",
    "simulated",
    "dashboard_url",
)
"""Settings of a site that a simulation of it does not take over: they lead to what is real."""


def settings_of(
    directory: Path,
    simulated: SimulatedSite,
    *,
    config: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    address: str = "",
    dhcp: bool = False,
    url: str = "",
) -> head_settings.Settings:
    """The settings of the head, written down. `config` are those of a site, `changes` are by their
    dotted names, `address` is the head's with its prefix, `url` is where browsers reach it. Raises
    InputError, InventoryErrors."""
    given = {} if config is None else config
    values: dict[str, Any] = {key: value for key, value in given.items() if key not in _OWN}
    if address or config is None:
        values |= _head_address(address or simulated.head)
    power = {
        "poll_s": max(30.0, len(simulated.identities) / 100),
        **(values.get("power") or {}),
        "media_port": 0,
    }
    boot = {
        **(values.get("boot") or {}),
        "dhcp": "serve" if dhcp else "off",
        "ipxe_dir": str(directory / "ipxe"),
        "ra_prefix": None,
        "ntp_port": 0,
    }
    values |= {
        "interface": INTERFACE,
        "simulated": True,
        "dashboard_url": url,
        "socket": str(directory / SOCKET),
        "power": power,
        "boot": boot,
        "images": {k: v for k, v in (values.get("images") or {}).items() if k == "http_port"},
    }
    _apply_changes(values, {} if changes is None else changes)
    (directory / head_settings.FILE_NAME).write_text(yaml.safe_dump(values))
    return head_settings.load(directory)


def _head_address(text: str) -> dict[str, Any]:
    """The settings of an address with its prefix."""
    address, _, prefix = text.partition("/")
    return {"address": address, "prefix": int(prefix) if prefix.isdigit() else prefix}


def _apply_changes(settings: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Changes settings by their dotted names. Raises InputError."""
    for name, value in changes.items():
        place, last = place_of(settings, name)
        place[last] = value


def prepare(directory: Path, settings: head_settings.Settings, simulated: SimulatedSite) -> None:
    """What a head needs to boot nodes: keys, boot sets, boot programs. All of it is of a few bytes:
    simulated nodes run nothing."""
    pki.create(directory / "pki", *settings.certificate_names)
    if settings.heads.name:
        (directory / DIRECTORY).mkdir(mode=0o700)
        (directory / DIRECTORY / KEY).write_bytes(os.urandom(KEY_BYTES))
    for name in ("secrets", "ipxe", "boot", "files"):
        (directory / name).mkdir(mode=0o700, exist_ok=True)
    for name in ("undionly.kpxe", "snponly.efi"):
        (directory / "ipxe" / name).write_bytes(b"simulated")
    signer = Signer(directory / "images" / "signing.key")
    for number in reversed(range(_DEFAULT_SETS)):
        _boot_set(directory, signer, None, f"set {number}", age_s=60.0 * number)
    for profile, arch in simulated.profiles:
        if profile:
            recipe = of(profile, None)
            _boot_set(
                directory,
                signer,
                Profile(recipe.name, recipe.kernel, architecture=arch),
                f"profile {profile}",
                age_s=3600.0,
            )
    for image in {*simulated.images, "one", "two"}:
        (directory / "files" / f"{image}.squashfs").write_bytes(b"hsqs" + image.encode() * 100)


def copy_head(place: Path, other: Path, address: str, changes: Mapping[str, Any]) -> Path:
    """Makes a further head beside one that has not begun: its settings with another address and
    these changes, its files, and the same machines. The directory."""
    values = yaml.safe_load((place / head_settings.FILE_NAME).read_text())
    values |= {"address": address, "socket": str(other / SOCKET)}
    _apply_changes(values, changes)
    other.mkdir(mode=0o700)
    (other / head_settings.FILE_NAME).write_text(yaml.safe_dump(values))
    for name in ("pki", "secrets", "ipxe", "boot", "images", "files", DIRECTORY):
        if (place / name).is_dir():
            shutil.copytree(place / name, other / name)
    for name in ("server.pem", "server.key"):
        (other / "pki" / name).unlink()
    (other / BMCS).symlink_to(place / BMCS)
    return other


def _boot_set(
    directory: Path, signer: Signer, profile: Profile | None, text: str, *, age_s: float
) -> None:
    boot = directory / "boot"
    new = directory / "boot" / ".new"
    new.mkdir()
    for name in _ALL_FILES:
        (new / name).write_bytes(f"simulated {name} of {text}\n".encode())
    about = {"kernel_release": "simulated", "profile": (profile or of("server", None)).to_json()}
    (new / "minos.json").write_text(json.dumps(about))
    sets.sign(new, sets.name_of(new), signer.sign)
    boot_set = sets.install_set(boot, new)
    when = time.time() - age_s
    os.utime(boot_set.directory / _ALL_FILES[1], (when, when))


class HeadProcess:
    """The head's process, in the network namespace of who starts it. `api` is how it is spoken to;
    `environment` is what its environment has besides."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.api = Api(directory / SOCKET)
        self.environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the head itself; 0 before it was started."""
        return self._process.pid if self._process is not None else 0

    @property
    def runs(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, listener: int = -1) -> None:
        """Starts it. It ends with the thread that does this. It serves its API on `listener`, too:
        the file descriptor of a listening socket, which is closed here."""
        argv = [
            "setpriv",
            "--pdeathsig",
            "TERM",
            "--",
            sys.executable,
            "-m",
            "layercake.cli.main",
            "serve",
            "--data-dir",
            str(self._directory),
            *(["--listen-fd", str(listener)] if listener >= 0 else []),
        ]
        with (self._directory / LOG).open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,
                pass_fds=[listener] if listener >= 0 else [],
            )
        if listener >= 0:
            os.close(listener)

    def wait(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Returns when it serves, or when it is to be stopped. Raises OperationFailed."""
        end = time.monotonic() + _STARTS_S
        while not stopped() and not self._serves():
            if self._process is None or self._process.poll() is not None or time.monotonic() > end:
                raise OperationFailed(f"cannot simulate: the head does not come up:\n{self.log()}")
            time.sleep(0.1)

    def _serves(self) -> bool:
        with contextlib.suppress(OSError, OperationFailed):
            status = self.api.request("GET", "/v1/status")
            return all(s["state"] == "running" for s in status["services"])
        return False

    def log(self) -> str:
        """The end of what it wrote."""
        with contextlib.suppress(OSError):
            return (self._directory / LOG).read_text()[-3000:]
        return ""

    def stop(self) -> None:
        """Ends it, and what it has started."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOPS_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None

    def fill(self, simulated: SimulatedSite, extra: Sequence[str] = ("one", "two")) -> None:
        """Gives it images of these names and applies the inventory. Raises OperationFailed."""
        for image in sorted({*simulated.images, *extra}):
            self.api.request(
                "POST",
                "/v1/images",
                {
                    "path": str(self._directory / "files" / f"{image}.squashfs"),
                    "name": image,
                    "systemd": False,
                },
            )
        self.api.request(
            "POST",
            "/v1/inventory/apply",
            {"yaml": simulated.text, "file": "sim.yaml", "allow_remove": False},
        )
