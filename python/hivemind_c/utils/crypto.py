"""RSA keys for a program's own signatures; hivemind_c itself signs with the node's Ed25519 key, which never leaves the
node.
"""

from __future__ import annotations

import base64
import threading
from abc import ABC, abstractmethod
from typing import Any, Optional, Tuple


class PrivateKey(ABC):
    @abstractmethod
    def sign(self, data: bytes) -> bytes:
        """Returns the signature of bytes.

        Args:
            data: The bytes.
        """

    """Base of private keys."""

    @abstractmethod
    def get_public_key(self) -> "PublicKey":
        """Returns the public key of this key."""


class PublicKey(ABC):
    @abstractmethod
    def verify(self, data: bytes, signature: bytes) -> bool:
        """True if the private key has signed these bytes.

        Args:
            data: The bytes.
            signature: Result of sign().
        """

    """Base of public keys."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Returns the key as bytes."""

    @classmethod
    @abstractmethod
    def from_bytes(cls, key: bytes) -> "PublicKey":
        """Returns the key that bytes hold.

        Args:
            key: Result of to_bytes().
        """


def _parts() -> Tuple[Any, Any]:
    """(cryptography's hashes, serialization and asymmetric parts by name). ImportError: it is not installed."""
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import padding, rsa
    except ImportError as error:
        raise ImportError(
            f"RSA keys cannot be used: {error}; pip install cryptography, or use the node's own key "
            "(hivemind_c.dht.SignatureValidator)"
        ) from None
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH), hashes.SHA256()
    return (rsa, serialization), pss


class RSAPrivateKey(PrivateKey):
    """A new key of 2,048 bits."""

    _process_wide_key: Optional["RSAPrivateKey"] = None
    _process_wide_key_lock = threading.RLock()

    def __init__(self) -> None:
        (rsa, _), _ = _parts()
        self._private_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @classmethod
    def process_wide(cls) -> "RSAPrivateKey":
        """One key for the whole process, made at the first call."""
        with cls._process_wide_key_lock:
            if cls._process_wide_key is None:
                cls._process_wide_key = cls()
            return cls._process_wide_key

    def sign(self, data: bytes) -> bytes:
        """Returns the signature of bytes (RSA-PSS with SHA-256) in base64.

        Args:
            data: The bytes.
        """
        _, pss = _parts()
        return base64.b64encode(self._private_key.sign(data, *pss))

    def get_public_key(self) -> "RSAPublicKey":
        """Returns the public key of this key."""
        return RSAPublicKey(self._private_key.public_key())

    def to_bytes(self) -> bytes:
        """The secret key in DER, without a password."""
        (_, serialization), _ = _parts()
        return self._private_key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )


class RSAPublicKey(PublicKey):
    """An RSA public key. Its bytes are a line of OpenSSH.

    Args:
        public_key: A public key of the package cryptography.
    """

    def __init__(self, public_key: Any):
        self._public_key = public_key

    def verify(self, data: bytes, signature: bytes) -> bool:
        """True if the private key has signed these bytes.

        Args:
            data: The bytes.
            signature: Result of RSAPrivateKey.sign().
        """
        from cryptography.exceptions import InvalidSignature

        _, pss = _parts()
        try:
            self._public_key.verify(base64.b64decode(signature, validate=True), data, *pss)
            return True
        except (ValueError, InvalidSignature):
            return False

    def to_bytes(self) -> bytes:
        """Returns the key as a line of OpenSSH."""
        (_, serialization), _ = _parts()
        return self._public_key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)

    @classmethod
    def from_bytes(cls, key: bytes) -> "RSAPublicKey":
        """Returns the key that a line of OpenSSH holds.

        Args:
            key: Result of to_bytes().
        """
        (rsa, serialization), _ = _parts()
        found = serialization.load_ssh_public_key(key)
        if not isinstance(found, rsa.RSAPublicKey):
            raise ValueError(
                f"an RSA key is needed, not {type(found).__name__}: give what RSAPublicKey.to_bytes() returned"
            )
        return cls(found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RSAPublicKey) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())


__all__ = ["PrivateKey", "PublicKey", "RSAPrivateKey", "RSAPublicKey"]
