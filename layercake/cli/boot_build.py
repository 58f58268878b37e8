"""What is built on this machine, by the head's own code, which a client elsewhere may not have:
`layercake boot build`, `profile build`, `boot-media`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from layercake.cli.head import data_option, disktools_option
from layercake.client.command import Answer, App, command
from layercake.client.output import format_size
from layercake.features.boots.commands import boot, profile

__all__ = ["boot", "boot_media", "profile"]


@command(boot)
@data_option
def build(app: App, data_dir: Path) -> Answer:
    """Build a boot set on this machine, out of this Layercake, by the profile of the newest set. No
    node boots it before a roll, or `boot default`. To change what goes in: `layercake profile
    build`."""
    from layercake.setup import build_boot  # imported here for the reason given in `init`

    boot_set = build_boot(data_dir, echo=app.out.note)
    text = (
        f"boot set {boot_set.name}: `layercake boot roll RANGE {boot_set.name}` takes nodes to it"
    )
    return Answer({"name": boot_set.name, "kernel": boot_set.kernel, "size": boot_set.size}, text)


def _split_names(
    ctx: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[str, ...] | None:
    return None if text is None else tuple(name for name in text.split(",") if name)


@command(profile, "build")
@data_option
@click.argument("name", metavar="PROFILE")
@click.option(
    "--arch",
    "architecture",
    type=click.Choice(["aarch64", "x86_64"]),
    help="The machines that it is for, if not those of the head's architecture; a profile that was "
    "built keeps its own.",
)
@click.option(
    "--kernel", metavar="PACKAGE|FILE", help="The Debian package of the kernel, or the path of one."
)
@click.option(
    "--kernel-modules", metavar="DIR", help="lib/modules/RELEASE, where --kernel is a path."
)
@click.option(
    "--modules",
    callback=_split_names,
    metavar="NAME,..",
    help="Module sets (server-nics, storage, infiniband, ipmi, usb, misc), and modules by their "
    "names.",
)
@click.option(
    "--firmware",
    callback=_split_names,
    metavar="PACKAGE|DIR,..",
    help="Where the firmware is that modules ask for: Debian packages, directories.",
)
@disktools_option
def build_profile(app: App, data_dir: Path, name: str, **changes: Any) -> Answer:
    """Build a boot set by PROFILE on this machine. What is not said stays as it was when PROFILE
    was last built; `server` (machines as they are sold) and `virtual` (virtual machines of KVM)
    need no telling. No node that boots another set of it boots the new one before a roll, or
    `profile default`."""
    from layercake.setup import build_boot  # imported here for the reason given in `init`

    boot_set = build_boot(data_dir, echo=app.out.note, profile=name, **changes)
    return Answer(
        {"name": boot_set.name, "kernel": boot_set.kernel, "size": boot_set.size},
        f"boot set {boot_set.name}: `layercake boot roll RANGE {boot_set.name}` takes nodes to it",
    )


@command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--ipxe-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default="/usr/lib/ipxe",
    show_default=True,
    help="Where ipxe.lkrn and ipxe.efi are.",
)
def boot_media(app: App, file: Path, ipxe_dir: Path) -> Answer:
    """Write FILE, the image of a USB stick or of virtual media: for machines whose firmware cannot
    boot by network. It is the same for all nodes, and holds no secret: iPXE on it asks this site's
    head."""
    from layercake.setup import boot_media as write  # imported here for the reason given in `init`

    number = write(file, ipxe_dir)
    return Answer(
        {"file": str(file), "size": number},
        f"{file}: {format_size(number)}; to a stick with `dd if={file} of=/dev/sdX bs=1M`",
    )
