"""`layercake init`: makes a data directory that `layercake serve` can serve."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from imageapi.store.manifest import Signer
from layercake.api import auth
from layercake.head import pki
from layercake.head import settings as head_settings
from layercake.head.access import tokens
from layercake.head.settings import Settings
from layercake.kraken.errors import InputError
from minos.build import BuildOptions, media, profiles, sets
from minos.build.sets import BootSet

CACHE_NAME = "cache"


def _address_of(interface: str) -> tuple[str, int]:
    found = subprocess.run(["ip", "-j", "-4", "addr", "show", "dev", interface], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise InputError(f"cannot use interface {interface!r}: there is no such interface", hint="see `ip link`")
    for entry in json.loads(found.stdout):
        for address in entry.get("addr_info", []):
            return str(address["local"]), int(address["prefixlen"])
    raise InputError(f"cannot use interface {interface}: it has no IPv4 address", hint="give it one, or say --address")


def initialise(
    data_dir: Path, *, interface: str, address: str | None = None, boot: bool = True, echo: Callable[[str], None] = print,
    socket: str | None = None, cache: Path | None = None, ra_prefix: str | None = None, profile: str = "",
) -> Settings:
    """Writes settings, certificate authority and an admin token, and builds minOS.

    What is there already stays: running it again completes what is missing (and builds minOS anew). `boot` False leaves
    minOS out. `profile` is the boot profile. `cache` keeps downloaded kernel packages. Raises InputError for an unusable interface
    or address.
    """
    found, prefix = _address_of(interface)
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    data_dir.chmod(0o700)
    (data_dir / "secrets").mkdir(exist_ok=True, mode=0o700)
    if (data_dir / head_settings.FILE_NAME).exists():
        settings = head_settings.load(data_dir)
        echo(f"{data_dir / head_settings.FILE_NAME} is there already; it stays as it is")
    else:
        sections = {"boot": {"ra_prefix": ra_prefix}} if ra_prefix else {}
        settings = Settings(interface=interface, address=address or found, prefix=prefix, sections=sections)
        if socket is not None:
            settings = msgspec.structs.replace(settings, socket=socket)
        head_settings.save(data_dir, settings)
        settings = head_settings.load(data_dir)
        echo(f"settings: {data_dir / head_settings.FILE_NAME}")
    if not (data_dir / "pki" / "server.pem").exists():
        pki.create(data_dir / "pki", settings.address)
        echo(f"certificate authority: {data_dir / 'pki' / 'ca.pem'}")
    if not (data_dir / tokens.FILE_NAME).exists():
        echo(f"admin token for the network API: {auth.create(data_dir)}")
    if boot:
        build_boot(data_dir, cache, echo, profile=profile)
    return settings


def build_boot(data_dir: Path, cache: Path | None = None, echo: Callable[[str], None] = print, *, profile: str = "",
               **changes: Any) -> BootSet:
    """Builds a boot set by a profile, "" for that of the newest set, with this head's certificate authority in it. `changes` are
    fields of Profile, None for what stays as it was when the profile was last built. Raises LayercakeError."""
    boot = data_dir / "boot"
    sets.adopt(boot, clear=False)  # what an older Layercake built: nodes go on booting it
    before = [s.profile for s in sets.all_of(boot) if s.profile is not None]
    name = profile or (before[0].name if before else profiles.GENERAL)
    wanted = profiles.of(name, next((p for p in before if p.name == name), None), **changes)
    echo(f"building minOS by profile {name}")
    options = BuildOptions(boot, cache or data_dir / CACHE_NAME, data_dir / "pki" / "ca.pem", wanted)
    signer = Signer(data_dir / "images" / "signing.key")
    made = sets.add(boot, options, say=echo, make=signer.sign, signed=signer.signed)
    echo(f"boot set {made.name}: kernel {made.kernel}, {made.size / 1e6:.1f} MB")
    return made


def boot_media(file: Path, ipxe: Path) -> int:
    """Writes the image of a USB stick; see minos.build.media.write."""
    return media.write(file, ipxe)
