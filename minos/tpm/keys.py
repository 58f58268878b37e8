"""The two keys that a TPM makes of its seed, the same ones at each boot: the endorsement key, which
names it and can only decrypt, and the attestation key, which signs only what the TPM itself has
made.

The head holds what a node says of its keys against these bytes: a key with other properties could
be anybody's, outside a TPM.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from minos.tpm.wire import (
    AES,
    CFB,
    ECC,
    ECDSA,
    NULL,
    P256,
    P384,
    RSA,
    SHA256,
    SHA384,
    sized,
    u16,
    u32,
)

_SECRET_256 = bytes.fromhex("837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa")
_SECRET_384 = bytes.fromhex(
    "8bbf2266537c171cb56e403c4dc1d4b64f432611dc386e6f"
    "532050c3278c930e143e8bb1133824ccb431053871c6db53"
)
"""PolicySecret(TPM_RH_ENDORSEMENT) by SHA-256 and SHA-384: the policy of all endorsement keys of
the low range, policy A."""
_STORED_256 = bytes.fromhex("3767e2edd43ff45a3a7e1eaefcef78643dca964632e7aad82c673a30d8633fde")
_STORED_384 = bytes.fromhex(
    "d6032ce61f2fb3c240eb3cf6a33237ef2b6a16f4293c22b4"
    "55e261cffd217ad5b4947c2d73e63005eed2dc2b3593d165"
)
"""Policy C, a policy that an owner may put into the TPM: keys of the high range can be used by A or
C (section B.6)."""
POLICY_OR = 0x171
"""TPM_CC_PolicyOR: also a part of what a policy with branches is (Part 3, TPM2_PolicyOR)."""
_LOW = 0x000300B2
_HIGH = 0x000300F2
"""fixedTPM, fixedParent, sensitiveDataOrigin, adminWithPolicy, restricted, decrypt; in the high
range userWithAuth too."""
POINT_BYTES = 32


class Endorsement(NamedTuple):
    """One kind of endorsement key (TCG EK Credential Profile, annex B.3 and B.4). `fixed` is its
    public part up to what is its own, `unique` what stands there in the template; `certificate` is
    where the maker has put its certificate (section 2.2.1.4 and .5); `size` is of its modulus or
    its coordinates, in bytes; `bits` of its AES. A policy of the high range has two `branches`."""

    name: str
    fixed: bytes
    unique: bytes
    certificate: int
    size: int
    hash: int
    bits: int
    branches: tuple[bytes, ...]

    @property
    def template(self) -> bytes:
        """What a TPM makes it from."""
        return self.fixed + self.unique


def _kind(
    name: str, size: int, place: int, *, curve: int | None = None, branches: tuple[bytes, ...] = ()
) -> Endorsement:
    digest, bits = (hashlib.sha384, 256) if size in (48, 384) else (hashlib.sha256, 128)
    policy = (
        digest(bytes(digest().digest_size) + u32(POLICY_OR) + b"".join(branches)).digest()
        if branches
        else _SECRET_256
    )
    its_hash = SHA384 if bits == 256 else SHA256
    head = (
        u16(RSA if curve is None else ECC)
        + u16(its_hash)
        + u32(_HIGH if branches else _LOW)
        + sized(policy)
    )
    own = u16(8 * size) + u32(0) if curve is None else u16(curve) + u16(NULL)
    blank = sized(b"" if branches else bytes(size)) * (1 if curve is None else 2)
    return Endorsement(
        name,
        head + u16(AES) + u16(bits) + u16(CFB) + u16(NULL) + own,
        blank,
        place,
        size,
        its_hash,
        bits,
        branches,
    )


_EITHER_256 = (_SECRET_256, _STORED_256)
_EITHER_384 = (_SECRET_384, _STORED_384)
ENDORSEMENTS = (
    _kind("RSA 2048", 256, 0x01C00002),
    _kind("ECC P-256", 32, 0x01C0000A, curve=P256),
    _kind("RSA 2048, high range", 256, 0x01C00012, branches=_EITHER_256),
    _kind("ECC P-256, high range", 32, 0x01C00014, curve=P256, branches=_EITHER_256),
    _kind("ECC P-384", 48, 0x01C00016, curve=P384, branches=_EITHER_384),
    _kind("RSA 3072", 384, 0x01C0001C, branches=_EITHER_384),
)
"""Templates L-1, L-2, H-1, H-2, H-3 and H-6, in the order in which they are looked for."""
AK_FIXED = (
    u16(ECC)
    + u16(SHA256)
    + u32(0x00050472)
    + sized(b"")
    + u16(NULL)
    + u16(ECDSA)
    + u16(SHA256)
    + u16(P256)
    + u16(NULL)
)
"""The attestation key up to its point: fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth,
noDA, restricted, sign. Without noDA a TPM locks itself after some power cuts: it takes each for an
attack on the key's password."""
AK_TEMPLATE = AK_FIXED + sized(b"") + sized(b"")
EK_KEPT = 0x81010001, 0x81010002
"""Where endorsement keys are kept by many makers (TCG TPM v2.0 Provisioning Guidance, section 7.8):
to make one anew takes discrete TPMs seconds."""
