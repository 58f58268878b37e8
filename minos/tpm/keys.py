"""The two keys that a TPM makes of its seed, the same ones at each boot: the endorsement key, which names it and can only decrypt,
and the attestation key, which signs only what the TPM itself has made.

The head holds what a node says of its keys against these bytes: a key with other properties could be anybody's, outside a TPM.
"""

from __future__ import annotations

from minos.tpm.wire import AES, CFB, ECC, ECDSA, NULL, P256, RSA, SHA256, sized, u16, u32

_POLICY_SECRET = bytes.fromhex("837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa")
"""PolicySecret(TPM_RH_ENDORSEMENT), the policy of all endorsement keys of the low range."""
EK_BYTES, POINT_BYTES = 256, 32
EK_FIXED = (u16(RSA) + u16(SHA256) + u32(0x000300B2) + sized(_POLICY_SECRET)
            + u16(AES) + u16(128) + u16(CFB) + u16(NULL) + u16(2048) + u32(0))
"""The endorsement key up to its modulus (TCG EK Credential Profile, template L-1): fixedTPM, fixedParent, sensitiveDataOrigin,
adminWithPolicy, restricted, decrypt."""
EK_TEMPLATE = EK_FIXED + sized(bytes(EK_BYTES))
AK_FIXED = (u16(ECC) + u16(SHA256) + u32(0x00050472) + sized(b"")
            + u16(NULL) + u16(ECDSA) + u16(SHA256) + u16(P256) + u16(NULL))
"""The attestation key up to its point: fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth, noDA,
restricted, sign. Without noDA a TPM locks itself after some power cuts: it takes each for an attack on the key's password."""
AK_TEMPLATE = AK_FIXED + sized(b"") + sized(b"")
EK_KEPT = 0x81010001
"""Where the endorsement key is kept by many makers (TCG TPM v2.0 Provisioning Guidance, section 7.8): to make it anew takes
discrete TPMs seconds."""
EK_CERTIFICATE = 0x01C00002
"""Where the maker has put the certificate of the endorsement key (TCG EK Credential Profile, section 2.2.1.4)."""
