"""What the head wants a node to run: the images of a set, checked before anything is done with
them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from imageapi.spec.attachment import RbdSource, Verity, parse_rbd, parse_verity
from imageapi.spec.container import ContainerSpec, parse_container
from imageapi.spec.fields import fail, matching
from imageapi.spec.names import DIGEST, NAME
from layercake.kraken.errors import InputError

_URL = re.compile(r"(https?://|file:///)\S+")
_SIGNATURE = re.compile(".{0,100}", re.DOTALL)
MODULES = "kernel-modules"
"""What the content with a kernel's modules is called where an image's name stands."""


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """One image of the set. `digest` is blake2b:HEX of the squashfs file, `size` its bytes.

    With `attach` it is read from a cluster as it is needed, checked by `verity`; without, it is
    fetched from `url` as a whole.
    """

    name: str
    digest: str
    size: int
    url: str
    container: ContainerSpec
    attach: RbdSource | None = None
    verity: Verity | None = None
    signature: str = field(default="", compare=False)
    """The head's, over `manifest`, in base64; "" from a head that has not signed it."""
    modules: ImageSpec | None = field(default=None, compare=False)
    """The content with the modules of the kernel that this node has booted, for one that asks for
    `kernel_modules`; None if the head gives none."""
    mbit_s: int = field(default=0, compare=False)
    """The most million bits a second that it is fetched by, 0 for as fast as it goes."""

    @property
    def contents(self) -> tuple[ImageSpec, ...]:
        """All that the node must have to run it: itself, and the modules."""
        return (self,) if self.modules is None else (self, self.modules)

    @property
    def hex(self) -> str:
        """The digest without its algorithm: names the file."""
        return self.digest.partition(":")[2]

    @property
    def manifest(self) -> str:
        """What the signature is of."""
        return manifest(
            self.digest, self.size, self.verity.to_wire() if self.attach and self.verity else {}
        )

    def to_wire(self) -> dict[str, Any]:
        """The form that `parse_image` reads."""
        return {
            "name": self.name,
            "digest": self.digest,
            "size": self.size,
            "url": self.url,
            "container": self.container.to_wire(),
            **({"attach": self.attach.to_wire()} if self.attach else {}),
            **({"verity": self.verity.to_wire()} if self.verity else {}),
            **({"signature": self.signature} if self.signature else {}),
            **({"modules": self.modules.to_wire()} if self.modules else {}),
            **({"mbit_s": self.mbit_s} if self.mbit_s else {}),
        }


def manifest(digest: str, size: int, verity: Mapping[str, Any]) -> str:
    """What the head signs of a content, whatever it is called: the same text for the same facts.
    `verity` is {} for one that is fetched."""
    return json.dumps(
        {"digest": digest, "size": size, "verity": dict(verity)},
        sort_keys=True,
        separators=(",", ":"),
    )


def parse_image(data: Mapping[str, Any]) -> ImageSpec:
    """One image of the desired document. Raises InputError that names the field."""
    if not isinstance(data, Mapping):
        raise fail("description", data, "a mapping")
    attach, tree = _parse_source(data)
    container = parse_container(data.get("container") or {})
    modules = data.get("modules") if container.kernel_modules else None
    return ImageSpec(
        matching(data.get("name"), "name", NAME, "letters, digits, dots, dashes and one :tag"),
        matching(data.get("digest"), "digest", DIGEST, "blake2b: and 64 hex digits"),
        _count(data.get("size"), "size", "a number of bytes"),
        matching(data.get("url"), "url", _URL, "an http://, https:// or file:/// address"),
        container,
        attach,
        tree,
        matching(data.get("signature", ""), "signature", _SIGNATURE, "64 bytes in base64"),
        _parse_modules(modules, data.get("mbit_s", 0)) if modules else None,
        _count(data.get("mbit_s", 0), "mbit_s", "a number of million bits a second"),
    )


def _count(value: object, name: str, expected: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise fail(name, value, expected)
    return value


def _parse_source(data: Mapping[str, Any]) -> tuple[RbdSource | None, Verity | None]:
    """Where it is in a cluster, and the hash tree to check it by. Raises InputError."""
    attach = parse_rbd(data["attach"]) if data.get("attach") else None
    tree = parse_verity(data["verity"]) if data.get("verity") else None
    if attach and not tree:
        raise fail(
            "attach",
            "no verity",
            "a hash tree: what comes from a cluster is checked block by block",
        )
    return attach, tree


def _parse_modules(data: object, mbit_s: object) -> ImageSpec:
    """Of an image of the same document: what it is given beside its own content. Raises
    InputError."""
    if not isinstance(data, Mapping):
        raise fail("modules", data, "a mapping")
    fields = {name: data[name] for name in ("digest", "size", "url", "signature") if name in data}
    return parse_image({"name": MODULES, "mbit_s": mbit_s, **fields})


def parse_images(data: list[Mapping[str, Any]]) -> tuple[ImageSpec, ...]:
    """The image set, by name. Raises InputError also for a name that occurs twice."""
    specs = sorted((parse_image(item) for item in data), key=lambda spec: spec.name)
    for first, second in pairwise(specs):
        if first.name == second.name:
            raise InputError(f"cannot use image set: {first.name} is in it twice")
    return tuple(specs)
