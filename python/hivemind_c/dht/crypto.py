"""hivemind's name for the validator that makes records a peer's own."""

from __future__ import annotations

from typing import Any

from hivemind_c.dht.validation import SignatureValidator


class RSASignatureValidator(SignatureValidator):
    """A SignatureValidator under the name of hivemind. Records are signed with the Ed25519 key of the node.

    Args:
        private_key: Must be None: the key is that of the node.
    """

    def __init__(self, private_key: Any = None) -> None:
        if private_key is not None:
            raise ValueError(
                "private_key: records are signed with the node's own key, which DHT(identity_path=...) keeps in a file"
            )
        super().__init__()
