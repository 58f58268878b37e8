"""Signatures, checked by the libcrypto that Python's own TLS has loaded: minOS has no other library
that could.

Python's ssl module has all of this, and does not show it (EVP_DigestVerify(3), EVP_PKEY_new(3), RFC
8032 for Ed25519).
"""

from __future__ import annotations

import base64
import ctypes
from functools import lru_cache

from layercake.base.text import lines_of_proc
from layercake.kraken.errors import OperationFailed

KEY_BYTES = 32
SIGNATURE_BYTES = 64
"""Sizes of a public key and of a signature of Ed25519 (RFC 8032, 5.1.5 and 5.1.6)."""
_ED25519 = 1087
"""OpenSSL's number of the kind of key (EVP_PKEY_ED25519 in <openssl/evp.h>)."""
_POINTERS = (
    "BIO_new_mem_buf",
    "PEM_read_bio_X509",
    "X509_get_pubkey",
    "EVP_MD_CTX_new",
    "EVP_sha256",
    "EVP_PKEY_new_raw_public_key",
)


@lru_cache(maxsize=1)
def _libcrypto() -> ctypes.CDLL:
    """The library, whatever its version is called. Raises OperationFailed."""
    import ssl  # noqa: F401  it loads it

    for line in lines_of_proc("/proc/self/maps"):
        if "libcrypto" in line.rpartition("/")[2]:
            crypto = ctypes.CDLL(line[line.index("/") :])
            for name in _POINTERS:
                getattr(crypto, name).restype = ctypes.c_void_p
            return crypto
    raise OperationFailed("cannot check a signature: there is no libcrypto in this process")


def _proven(
    key: ctypes.c_void_p, digest: ctypes.c_void_p | None, data: bytes, signature: bytes
) -> bool:
    """Whether a public key proves a signature of the data; no digest for kinds of keys that have
    their own."""
    crypto = _libcrypto()
    context = ctypes.c_void_p(crypto.EVP_MD_CTX_new())
    try:
        return (
            bool(key)
            and bool(context)
            and crypto.EVP_DigestVerifyInit(context, None, digest, None, key) == 1
            and (
                crypto.EVP_DigestVerify(
                    context,
                    signature,
                    ctypes.c_size_t(len(signature)),
                    data,
                    ctypes.c_size_t(len(data)),
                )
                == 1
            )
        )
    finally:
        crypto.EVP_MD_CTX_free(context)
        crypto.EVP_PKEY_free(key)


def by_certificate(pem: bytes, data: bytes, signature: bytes) -> bool:
    """Whether one of the certificates (PEM) proves the signature of the data, ECDSA or RSA over
    SHA-256. Raises OperationFailed."""
    crypto = _libcrypto()
    pointer = ctypes.c_void_p
    bio = pointer(crypto.BIO_new_mem_buf(pem, len(pem)))
    good = False
    try:
        while not good and (
            certificate := pointer(crypto.PEM_read_bio_X509(bio, None, None, None))
        ):
            good = _proven(
                pointer(crypto.X509_get_pubkey(certificate)),
                pointer(crypto.EVP_sha256()),
                data,
                signature,
            )
            crypto.X509_free(certificate)
    finally:
        crypto.BIO_free(bio)
    return good


def by_key(key: bytes, text: str, signature: str) -> bool:
    """Whether an Ed25519 public key (32 bytes) proves the signature, in base64, of a text. Raises
    OperationFailed."""
    try:
        proof = base64.b64decode(signature, validate=True)
    except ValueError:
        return False
    if len(key) != KEY_BYTES or len(proof) != SIGNATURE_BYTES:
        return False
    public = _libcrypto().EVP_PKEY_new_raw_public_key(
        _ED25519, None, key, ctypes.c_size_t(len(key))
    )
    return _proven(ctypes.c_void_p(public), None, text.encode(), proof)
