"""`layercake capture`: an archive of what was said in a node's last boot, and of its packets."""

from __future__ import annotations

from pathlib import Path

import click

from layercake.base.files import write_atomic
from layercake.client.command import Answer, App, command
from layercake.client.confirm import current_user
from layercake.client.http import path_segment
from layercake.client.output import format_size
from layercake.kraken.errors import InputError, OperationFailed

SPARE_S = 120.0
"""Seconds beyond those of the packets that the archive may take."""
MOST_BYTES = 64 << 20
"""Bytes of an archive: a head makes none that is nearly as large."""


@command()
@click.argument("name", metavar="NODE")
@click.option(
    "--seconds",
    type=click.IntRange(1, 600),
    default=30,
    show_default=True,
    help="For how long packets are captured; start the node meanwhile.",
)
@click.option(
    "-o",
    "--output",
    "file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The archive, a tar.gz; it must not be there yet.",
)
def capture(app: App, name: str, seconds: int, file: Path) -> Answer:
    """Capture what firmware, machine and head say of NODE: its packets from now on (DHCP, TFTP,
    HTTP, DNS), and the boot steps, console, events, explanation and inventory of its last boot.
    Tokens and passwords are left out."""
    if file.exists():
        raise InputError(f"cannot write {file}: it is there already", hint="name another file")
    app.out.note(f"capturing the packets of {name} for {seconds} s")
    body = {"seconds": seconds, "by": current_user()}
    data = b""
    for piece in app.head.stream(
        "POST", f"/v1/nodes/{path_segment(name)}/capture", timeout=seconds + SPARE_S, body=body
    ):
        data += piece
        if len(data) > MOST_BYTES:
            raise OperationFailed(f"cannot write {file}: the archive is larger than any can be")
    try:
        write_atomic(file, data, mode=0o600)
    except OSError as error:
        raise OperationFailed(f"cannot write {file}: {error.strerror}") from error
    return Answer(
        {"node": name, "file": str(file), "bytes": len(data)},
        f"{file}: {format_size(len(data))}; its README says what is in it",
    )
