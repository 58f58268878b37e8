"""The head's settings: one YAML file in the data directory, written by `layercake init`, checked when the head starts."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any, Literal

import msgspec

from imageapi.spec.attachment import RBD_NAME
from layercake.kraken.errors import InputError

FILE_NAME = "config.yaml"


class SyncSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State sync. Seconds; a node is lost when nothing came from it for `dead_s`."""

    port: int = 31415
    hello_s: float = 5.0
    dead_s: float = 15.0
    probe_s: float = 3.0


class BootSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Network boot. `attempts` boots are tried before a node is quarantined; how long one may take is in the inventory."""

    http_port: int = 8080
    tftp_port: int = 69
    dhcp_port: int = 67
    lease_s: int = 3600
    attempts: int = 3
    ipxe_dir: str = "/usr/lib/ipxe"
    ra_prefix: str | None = None


class PowerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """BMCs: each is read every `poll_s` seconds; `workers` operations run at once."""

    poll_s: float = 30.0
    workers: int = 16


class ImageSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The image store, and its HTTP server.

    `store` is "file" (in the data directory) or "rbd": an existing Ceph cluster by its `conf`, a `keyring` with the head's
    client (the first in it, or `user`) and a `pool`. Nodes get the key in `node_keyring`; without it, the head asks the
    cluster for one, which its own client must be allowed to.
    """

    http_port: int = 8081
    store: Literal["file", "rbd"] = "file"
    conf: str = ""
    keyring: str = ""
    pool: str = ""
    user: str = ""
    node_keyring: str = ""


class SlurmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Slurm whose nodes are ours, by the same names: its slurm.conf on this machine, "" for none. With `drain`, rolls drain a
    node before its switch and resume it afterwards; Slurm is asked every `poll_s` seconds while there is a roll."""

    conf: str = ""
    drain: bool = True
    poll_s: float = 2.0


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of the head."""

    interface: str
    address: str
    prefix: int = 24
    gateway: str | None = None
    dns: list[str] = []
    api_port: int = 8443
    api_listen: str | None = None  # the address that the TLS API listens on; `address` when not given
    socket: str = "/run/layercake/api.sock"
    sync: SyncSettings = SyncSettings()
    boot: BootSettings = BootSettings()
    power: PowerSettings = PowerSettings()
    images: ImageSettings = ImageSettings()
    slurm: SlurmSettings = SlurmSettings()

    @property
    def head_url(self) -> str:
        """Where nodes reach the head."""
        return f"https://{self.address}:{self.api_port}"

    def for_pxe(self, data_dir: Path) -> dict[str, Any]:
        """The boot service's settings (ARCHITECTURE.md, "Records over the module API")."""
        boot = self.boot
        return {
            "interface": self.interface, "address": self.address, "prefix": self.prefix, "gateway": self.gateway,
            "dns": self.dns,
            "http_port": boot.http_port,
            "tftp_port": boot.tftp_port, "dhcp_port": boot.dhcp_port, "lease_s": boot.lease_s,
            "boot_dir": str(data_dir / "boot"), "ipxe_dir": boot.ipxe_dir, "head_url": self.head_url,
            "sync_address": f"{self.address}:{self.sync.port}", "ra_prefix": boot.ra_prefix,
        }

    def for_powerman(self) -> dict[str, Any]:
        """The power service's settings."""
        return {"poll_s": self.power.poll_s, "workers": self.power.workers}

    def for_imageapi(self, data_dir: Path) -> dict[str, Any]:
        """The image service's settings."""
        return {"address": self.address, "http_port": self.images.http_port, "image_dir": str(data_dir / "images")}


def _check(settings: Settings, where: Path) -> None:
    for what, value in (("address", settings.address), ("gateway", settings.gateway)):
        if value is not None:
            try:
                ipaddress.IPv4Address(value)
            except ValueError:
                raise InputError(f"cannot use {where}: {what} {value!r} is not an IPv4 address") from None
    images = settings.images
    missing = [name for name in ("conf", "keyring", "pool") if not getattr(images, name)]
    if images.store == "rbd" and missing:
        raise InputError(f"cannot use {where}: images.store is rbd, and {', '.join(f'images.{m}' for m in missing)} is not given",
                         hint="the cluster's ceph.conf, the head's keyring, and the name of the pool for images")
    if images.store == "rbd" and not RBD_NAME.fullmatch(images.pool):
        raise InputError(f"cannot use {where}: images.pool {images.pool!r} is not letters, digits, dots and dashes")
    if not 0 < settings.sync.hello_s < settings.sync.dead_s:
        raise InputError(f"cannot use {where}: sync.dead_s must be above sync.hello_s", hint="three times hello_s is usual")


def load(data_dir: Path) -> Settings:
    """Reads the settings. Raises InputError with file and reason."""
    path = data_dir / FILE_NAME
    try:
        settings = msgspec.yaml.decode(path.read_bytes(), type=Settings)
    except FileNotFoundError:
        raise InputError(f"cannot read {path}: there is no such file", hint="run `layercake init` first") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    _check(settings, path)
    return settings


def save(data_dir: Path, settings: Settings) -> None:
    """Writes the settings, for the owner only."""
    path = data_dir / FILE_NAME
    path.touch(mode=0o600)
    comment = b"# Settings of the Layercake head; `layercake serve` reads them when it starts.\n"
    path.write_bytes(comment + msgspec.yaml.encode(settings))
