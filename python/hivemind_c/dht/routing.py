"""Places of keys in the DHT as numbers."""

from __future__ import annotations

import hashlib
import os
from typing import Any, List, Optional, Sequence, Union

from hivemind_c.dht.values import pack


class DHTID(int):
    """The place of a key in the DHT as a number of 160 bits, for distances between keys."""

    MIN, MAX, HASH_NBYTES = 0, 2**160, 20

    def __new__(cls, value: int) -> "DHTID":
        if not cls.MIN <= value < cls.MAX:
            raise ValueError(f"a DHTID is a number from 0 to 2**160 - 1, not {value}")
        return super().__new__(cls, value)

    @classmethod
    def generate(cls, source: Optional[Any] = None, nbits: int = 255) -> "DHTID":
        """Returns the place of a key, or a random one.

        Args:
            source: The key: bytes as they are, other values as MessagePack packs them. None: a random key.
            nbits: Bits of the random key.
        """
        if source is None:
            source = (int.from_bytes(os.urandom((nbits + 7) // 8), "big") >> (-nbits % 8)).to_bytes(
                (nbits + 7) // 8, "big"
            )
        return cls.from_bytes(hashlib.sha1(source if isinstance(source, bytes) else pack(source)).digest())

    def xor_distance(self, other: Union["DHTID", Sequence["DHTID"]]) -> Union[int, List[int]]:
        """Returns the distance to another place, or a list of distances.

        Args:
            other: One DHTID or several.
        """
        if isinstance(other, int):
            return int(self) ^ int(other)
        return [int(self) ^ int(one) for one in other]

    @classmethod
    def longest_common_prefix_length(cls, *ids: "DHTID") -> int:
        """Returns the number of leading bits that places share.

        Args:
            *ids: One DHTID or more.
        """
        spread = max(int(ids[0]) ^ int(one) for one in ids)
        return 8 * cls.HASH_NBYTES - spread.bit_length()

    def to_bytes(  # type: ignore[override]
        self, length: int = HASH_NBYTES, byteorder: str = "big", *, signed: bool = False
    ) -> bytes:
        """Returns the number as bytes.

        Args:
            length: Number of bytes.
            byteorder: "big" or "little".
            signed: As in int.to_bytes.
        """
        return super().to_bytes(length, byteorder, signed=signed)  # type: ignore[arg-type]

    @classmethod
    def from_bytes(  # type: ignore[override]
        cls, raw: bytes, byteorder: str = "big", *, signed: bool = False
    ) -> "DHTID":
        """Returns the number that bytes hold.

        Args:
            raw: The bytes.
            byteorder: "big" or "little".
            signed: As in int.from_bytes.
        """
        return cls(int.from_bytes(raw, byteorder, signed=signed))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"DHTID({hex(self)})"


__all__ = ["DHTID"]
