"""The modules of the node's kernel, and their firmware, for an image that asks for them
(`kernel_modules`).

They are a content like an image's own: one squashfs of the boot set that the node has booted,
signed by the head, fetched and mounted when the first image asks, and gone after the last.

    modules/RELEASE/    what a container has as /lib/modules/RELEASE
    firmware/           what it has as /lib/firmware, if there is any
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from imageapi.node import modules
from imageapi.node.attach.fetch import DigestMismatch
from imageapi.node.container.oci import Bind
from imageapi.node.interrupt import Interrupted
from imageapi.spec.image import ImageSpec
from layercake.kraken.errors import LayercakeError, OperationFailed

SEARCH = Path("/sys/module/firmware_class/parameters/path")
"""Where the kernel looks for firmware first (Linux'
Documentation/driver-api/firmware/fw_search_path.rst). It looks as process 1 does, and never into a
container, whichever program has loaded the module
(tools/testing/selftests/firmware/fw_namespace.c)."""

_ANOTHER = (
    "build another boot set and boot it: `layercake boot build`, then `layercake boot roll RANGE "
    "SET`"
)


def binds(spec: ImageSpec, layer: Callable[[ImageSpec], Path], release: str) -> list[Bind]:
    """What an image sees of the kernel `release`; nothing if it does not ask. `layer` gives a
    content, mounted. Raises LayercakeError, of the kind that `layer` raises, and Interrupted."""
    if not spec.container.kernel_modules:
        return []
    try:
        return _binds(spec, layer, release)
    except Interrupted:
        raise
    except LayercakeError as error:
        hint = _ANOTHER if isinstance(error, DigestMismatch) else error.hint
        raise type(error)(
            f"cannot give image {spec.name} the kernel's modules: {error.message}", hint=hint
        ) from None


def _binds(spec: ImageSpec, layer: Callable[[ImageSpec], Path], release: str) -> list[Bind]:
    if spec.modules is None:
        raise OperationFailed(
            "the head gives none for the boot set that this node has booted", hint=_ANOTHER
        )
    top = layer(spec.modules)
    modules_dir = top / "modules" / release
    firmware = top / "firmware"
    if not modules_dir.is_dir():
        others = ", ".join(sorted(path.name for path in (top / "modules").glob("*"))) or "no kernel"
        raise OperationFailed(
            f"its boot set has those of {others}, and the kernel that runs is {release}",
            hint=_ANOTHER,
        )
    binds = [Bind(str(modules_dir), f"/lib/modules/{release}", readonly=True)]
    if not firmware.is_dir() or not any(firmware.iterdir()):
        return binds
    if modules.DIRECTORY.exists():  # this is minOS, and the kernel its own
        _search(firmware)
    return [*binds, Bind(str(firmware), "/lib/firmware", readonly=True)]


def _search(firmware: Path) -> None:
    """Has the kernel find the firmware too."""
    try:
        SEARCH.write_text(str(firmware))
    except OSError as error:
        raise OperationFailed(
            f"the kernel does not take {firmware} as a place of firmware: {error.strerror}"
        ) from None
