"""Keys of one party for one run, and the fingerprints by which people compare them.

X25519 (RFC 7748) and HKDF with SHA-256 (RFC 5869), both of the package `cryptography`.
"""

import hashlib
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import atomic_file, shown
from fastadmm.files.reading import read_bytes

#: Of a key of either kind.
KEY_BYTES = 32

_PRIMITIVES = "cryptography.hazmat.primitives"


def primitive(name: str) -> Any:
    """A module of `cryptography`; it is loaded on first use."""
    try:
        return importlib.import_module(f"{_PRIMITIVES}.{name}")
    except ImportError:
        raise ConfigError(
            "secrecy: 'sums' needs the package cryptography: pip install 'fastadmm[secrecy]'"
        ) from None


def new_private_key() -> bytes:
    """A private key from the system's random numbers."""
    return bytes(primitive("asymmetric.x25519").X25519PrivateKey.generate().private_bytes_raw())


def kept_private_key(path: Path, digest: str) -> bytes:
    """The private key of a run on data of this digest, kept in a file of its owner's."""
    bound = json.dumps({"train": digest}).encode()
    if not path.exists():
        with atomic_file(path) as temporary:
            temporary.touch(mode=0o600)
            temporary.write_bytes(new_private_key() + bound)
    raw = read_bytes(path)
    seed = raw[:KEY_BYTES]
    if raw[KEY_BYTES:] != bound:
        raise FormatError(f"{shown(path)}: not a key of a run on these data; begin the run again")
    return derived(seed, hashlib.sha256(bound).digest(), b"fastadmm sums key 1")


def public_key(private: bytes) -> bytes:
    """The public key of a private one."""
    x25519 = primitive("asymmetric.x25519")
    return bytes(x25519.X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw())


def shared_secret(private: bytes, other: bytes) -> bytes:
    """What two parties know by their own private and the other's public key."""
    x25519 = primitive("asymmetric.x25519")
    key = x25519.X25519PrivateKey.from_private_bytes(private)
    try:
        return bytes(key.exchange(x25519.X25519PublicKey.from_public_bytes(other)))
    except ValueError:
        raise InputError(
            f"key {fingerprint(other)} of another party gives no secret; begin the run again"
        ) from None


def derived(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """A key for one use, by HKDF."""
    hashes, hkdf = primitive("hashes"), primitive("kdf.hkdf")
    return bytes(hkdf.HKDF(hashes.SHA256(), KEY_BYTES, salt, info).derive(secret))


def keys_of(words: np.ndarray) -> list[bytes]:
    """Public keys of all parties, as a call holds them: four words each."""
    raw = words.astype("<i8").tobytes()
    return [raw[k : k + KEY_BYTES] for k in range(0, len(raw), KEY_BYTES)]


def plain(text: str) -> str:
    """A fingerprint as it is compared: however it was spaced, and in which case its letters are."""
    return "".join(text.split()).lower()


def fingerprint(key: bytes) -> str:
    """A public key to read out on the telephone: 32 hexadecimal digits in eight groups."""
    digits = hashlib.sha256(b"fastadmm key\0" + key).hexdigest()[:32]
    return " ".join(digits[k : k + 4] for k in range(0, 32, 4))
