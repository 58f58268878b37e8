"""Layers that are read from a cluster as they are needed: an RBD snapshot, and over it the device
that checks every block.

RUN/attached/HEX.json       what is or was to be attached for a layer: what an agent that starts
again has to take away

The key is asked for when something is mapped, and held by nobody afterwards.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from imageapi.node.attach import rbd, verity
from imageapi.node.attach.rbd import Secret
from imageapi.spec.attachment import RbdSource, Verity, parse_rbd
from imageapi.spec.image import ImageSpec
from layercake.base.files import read_json, write_json
from layercake.kraken.errors import OperationFailed


class Blocks:
    """Attaches and detaches, each such that it can be repeated."""

    def __init__(self, run: Path, secret: Secret) -> None:
        self._directory = run / "attached"
        self._secret = secret
        self._tag = hashlib.blake2b(
            str(run).encode(), digest_size=4
        ).hexdigest()  # several agents may run on one machine

    def _file(self, digest: str) -> Path:
        return self._directory / f"{digest}.json"

    def _view(self, digest: str) -> str:
        """The device-mapper's name for a layer."""
        return f"layercake-{self._tag}-{digest[:40]}"

    def attach(self, spec: ImageSpec, source: RbdSource, tree: Verity) -> str:
        """The checked device of an image. Raises LayercakeError; then `detach` takes away what
        there is of it."""
        self._directory.mkdir(exist_ok=True)
        write_json(self._file(spec.hex), source.to_wire())
        key = b"" if rbd.find(source) else self._secret(source.secret)
        return verity.attach(self._view(spec.hex), rbd.attach(source, key), tree)

    def altered(self, spec: ImageSpec) -> bool:
        """Whether a block was read that is not what it should be."""
        return spec.attach is not None and verity.corrupted(self._view(spec.hex))

    def attached(self) -> set[str]:
        """The digests (hex) of what is attached, or was begun to be."""
        return (
            {file.stem for file in self._directory.glob("*.json")}
            if self._directory.is_dir()
            else set()
        )

    def detach(self, digest: str) -> None:
        """Takes both devices of a layer away. Raises OperationFailed while something uses them."""
        file = self._file(digest)
        verity.detach(self._view(digest))
        try:
            source = parse_rbd(read_json(file))
        except ValueError:
            raise OperationFailed(
                f"cannot read {file}: it is damaged; its device stays until the node boots anew"
            ) from None
        rbd.detach(source)
        file.unlink()
