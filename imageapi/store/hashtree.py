"""The hash tree that the kernel's dm-verity checks an image against, built without a superblock.

The format is the kernel's (Documentation/admin-guide/device-mapper/verity.rst, hash type 1):
sha256(salt + block) of every 4096-byte block, the hashes packed into blocks, hashed again, up to
one block; the topmost level lies first. `veritysetup` builds the same one, which the tests hold it
to. Ours is built while the image is read for its digest.
"""

from __future__ import annotations

import hashlib

BLOCK = 4096
SALT = b"layercake-image"
"""The same for all images, so that the same content has the same root hash; what is signed and
trusted is the root hash."""


class HashTree:
    """Takes the data piece by piece, each but the last a multiple of the block size."""

    def __init__(self, salt: bytes = SALT) -> None:
        self.salt = salt
        self.blocks = 0
        self._start = hashlib.sha256(salt)
        self._leaves = bytearray()

    def _hash(self, block: bytes | memoryview) -> bytes:
        hasher = self._start.copy()
        hasher.update(block)
        return hasher.digest()

    def feed(self, data: bytes) -> None:
        """The next piece. Its last block is filled up with zeros."""
        data += b"\0" * (-len(data) % BLOCK)
        view = memoryview(data)
        for at in range(0, len(data), BLOCK):
            self._leaves += self._hash(view[at : at + BLOCK])
        self.blocks += len(data) // BLOCK

    def finish(self) -> tuple[str, bytes]:
        """(root hash in hex, the tree as it lies on the device)."""
        hashes = bytes(self._leaves)
        levels = []
        while len(hashes) > 32:
            level = hashes + b"\0" * (-len(hashes) % BLOCK)
            levels.append(level)
            hashes = b"".join(
                self._hash(level[at : at + BLOCK]) for at in range(0, len(level), BLOCK)
            )
        return hashes.hex(), b"".join(reversed(levels))
