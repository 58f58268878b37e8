"""`layercake init`: makes a data directory that `layercake serve` can serve."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from imageapi.store.manifest import Signer
from layercake.agents import pki
from layercake.features.access import doors, tokens
from layercake.guess import NONE, Ask, Given, choose, read_machine
from layercake.head import settings as head_settings
from layercake.head.settings import Settings
from layercake.inventory.structs import place_of
from layercake.kraken.errors import InputError
from minos.build import BuildOptions, media, profiles, sets
from minos.build.sets import BootSet

CACHE_NAME = "cache"


def initialise(
    data_dir: Path,
    *,
    interface: str | None = None,
    address: str | None = None,
    gateway: str | None = None,
    dns: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    ask: Ask | None = None,
    boot: bool = True,
    echo: Callable[[str], None] = print,
    cache: Path | None = None,
    profile: str = "",
    disktools: bool | None = None,
) -> Settings:
    """Writes settings, certificate authority and an admin token, and builds minOS.

    What is there already stays: running it again completes what is missing (and builds minOS anew).
    `options` are settings by their dotted names; `ask` asks a person for what was neither given nor
    can be guessed. `boot` False leaves minOS out. `profile` is the boot profile, with the programs
    for disks or without (None: as it was). `cache` keeps downloaded kernel packages. Raises
    InputError for what is missing or cannot be used, and where settings that are there say
    otherwise.
    """
    wanted = dict(options or {})
    given = Given(interface, address, gateway, None if dns is None else tuple(dns))
    if head_settings.present(data_dir):
        settings = _as_it_is(data_dir, given, wanted)
        echo(f"{data_dir / head_settings.FILE_NAME} is there already; it stays as it is")
    else:
        chosen = choose(read_machine(), given, ask)
        settings = _checked(
            {
                "interface": chosen.interface,
                "address": chosen.address,
                "prefix": chosen.prefix,
                "gateway": chosen.gateway,
                "dns": list(chosen.dns),
            },
            wanted,
        )
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        head_settings.save(data_dir, settings)
        echo(f"settings: {head_settings.place(data_dir)}")
        for name in ("interface", "address", "gateway", "dns"):
            value = getattr(settings, name)
            said = ", ".join(value) if isinstance(value, list) else value
            echo(f"  {name}: {said or 'none'}")
    data_dir.chmod(0o700)
    (data_dir / "secrets").mkdir(exist_ok=True, mode=0o700)
    if not (data_dir / "pki" / "server.pem").exists():
        pki.create(data_dir / "pki", *settings.certificate_names)
        echo(f"certificate authority: {data_dir / 'pki' / 'ca.pem'}")
    if not (data_dir / tokens.FILE_NAME).exists():
        echo(f"admin token for the network API: {doors.create_admin_token(data_dir)}")
    if boot:
        build_boot(data_dir, cache, echo, profile=profile, disktools=disktools)
    return settings


def _checked(first: Mapping[str, Any], options: Mapping[str, Any]) -> Settings:
    """Settings out of their first values and what was said besides. Raises InputError with every
    mistake."""
    document: dict[str, Any] = dict(first)
    for name, value in options.items():
        place, last = place_of(document, name)
        place[last] = value
    return head_settings.checked(document)


def _as_it_is(data_dir: Path, given: Given, options: Mapping[str, Any]) -> Settings:
    """The settings that are there. Raises InputError if others were asked for: they would be
    silently forgotten."""
    settings = head_settings.load(data_dir)
    present = head_settings.document(settings)
    said = {
        "interface": given.interface,
        "address": given.address,
        "gateway": given.gateway,
        "dns": None if given.dns is None else [d for d in given.dns if d != NONE],
    }
    for name, value in {**{k: v for k, v in said.items() if v is not None}, **options}.items():
        found: Any = present
        for word in name.split("."):
            found = found.get(word) if isinstance(found, dict) else None
        if found != value and not (value == NONE and found is None):
            file = head_settings.place(data_dir)
            raise InputError(
                f"cannot set {name} to {value!r}: {file} is there already, and says {found!r}",
                hint="change it there, and start the head again",
            )
    return settings


def build_boot(
    data_dir: Path,
    cache: Path | None = None,
    echo: Callable[[str], None] = print,
    *,
    profile: str = "",
    **changes: Any,
) -> BootSet:
    """Builds a boot set by a profile, "" for that of the newest set for machines as this one, with
    this head's certificate authority in it. `changes` are fields of Profile, None for what stays as
    it was when the profile was last built. Raises LayercakeError."""
    boot = data_dir / "boot"
    sets.adopt(boot, clear=False)  # what an older Layercake built: nodes go on booting it
    signer = Signer(data_dir / "images" / "signing.key")
    before = _recipes(boot, signer, echo)
    name = profile or next(
        (p.name for p in before if p.architecture == platform.machine()), profiles.GENERAL
    )
    wanted = profiles.of(name, next((p for p in before if p.name == name), None), **changes)
    echo(f"building minOS by profile {name}")
    options = BuildOptions(
        boot, cache or data_dir / CACHE_NAME, data_dir / "pki" / "ca.pem", wanted
    )
    made = sets.add(boot, options, say=echo, make=signer.sign, signed=signer.signed)
    echo(f"boot set {made.name}: kernel {made.kernel}, {made.size / 1e6:.1f} MB")
    _warn_of_firmware(made, name, echo)
    return made


def _recipes(boot: Path, signer: Signer, echo: Callable[[str], None]) -> list[profiles.Profile]:
    """The profiles that boot sets were built by, but for those of sets that cannot be trusted."""
    recipes = []
    for boot_set in sets.all_of(boot):
        if boot_set.profile is None:
            continue
        if why := sets.trouble(boot, boot_set.name, signer.signed):
            echo(f"the recipe of boot set {boot_set.name} is not used: {why}")
        else:
            recipes.append(boot_set.profile)
    return recipes


def _warn_of_firmware(made: BootSet, profile: str, echo: Callable[[str], None]) -> None:
    """Says which drivers of a boot set are without their firmware."""
    missing = made.about.get("firmware_missing") or {}
    drivers = sorted({user for users in missing.values() for user in users})
    if drivers:
        echo(
            f"firmware was not found for {', '.join(drivers)}: cards of these drivers may need "
            f"`layercake profile build {profile} "
            "--firmware PACKAGE,..`, with packages of Debian's non-free-firmware"
        )


def boot_media(file: Path, ipxe: Path) -> int:
    """Writes the image of a USB stick; see minos.build.media.write."""
    return media.write(file, ipxe)
