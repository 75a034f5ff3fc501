"""Names and addresses of peers: strings, with the methods that programs written for hivemind call."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_CODES = {
    "ip4": 4,
    "tcp": 6,
    "ip6": 41,
    "dns": 53,
    "dns4": 54,
    "dns6": 55,
    "dnsaddr": 56,
    "udp": 273,
    "p2p": 421,
    "tls": 448,
    "quic": 460,
    "quic-v1": 461,
    "ws": 477,
    "wss": 478,
    "p2p-circuit": 290,
}
_BARE = {"quic", "quic-v1", "ws", "wss", "tls", "p2p-circuit"}  #: protocols without a value behind them


def to_base58(data: bytes) -> str:
    """Returns bytes as base58 text.

    Args:
        data: The bytes.
    """
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = _BASE58[digit] + text
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + text


def from_base58(text: str) -> bytes:
    """Returns the bytes of base58 text. Raises ValueError for other text.

    Args:
        text: The text.
    """
    number = 0
    for letter in text:
        digit = _BASE58.find(letter)
        if digit < 0:
            raise ValueError(f"{text!r} is not base58: it has {letter!r} in it")
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")


class PeerID(str):
    """The name of a peer in the text form of libp2p. It is made from that text or from its bytes."""

    __slots__ = ()

    def __new__(cls, peer_id: Union[str, bytes]) -> "PeerID":
        return super().__new__(cls, to_base58(peer_id) if isinstance(peer_id, (bytes, bytearray)) else peer_id)

    @classmethod
    def from_base58(cls, base58_id: str) -> "PeerID":
        """Returns the PeerID of base58 text. Raises ValueError for other text.

        Args:
            base58_id: The text.
        """
        from_base58(base58_id)
        return cls(base58_id)

    def to_base58(self) -> str:
        """Returns the text."""
        return str(self)

    def to_string(self) -> str:
        """Returns the text."""
        return str(self)

    def pretty(self) -> str:
        """Returns the text."""
        return str(self)

    def to_bytes(self) -> bytes:
        """Returns the bytes that the text stands for."""
        return from_base58(self)


class Protocol(NamedTuple):
    """One protocol of an address, such as tcp."""

    code: int
    name: str


class Multiaddr(str):
    """An address such as /ip4/10.0.0.7/tcp/31337/p2p/12D3KooW...

    As a string it is that text. Indexed by the name of a protocol it gives the value of the protocol.
    """

    __slots__ = ()

    def __new__(cls, addr: Union[str, bytes]) -> "Multiaddr":
        text = addr.decode() if isinstance(addr, (bytes, bytearray)) else str(addr)
        made = super().__new__(cls, text)
        made._parts()
        return made

    def _parts(self) -> List[Tuple[str, Optional[str]]]:
        words = str.split(self, "/")
        if words[0] or len(words) < 2:
            raise ValueError(f"{str(self)!r} is not a multiaddr: write it as /ip4/10.0.0.7/tcp/31337")
        rest, parts = iter(word for word in words[1:] if word), []
        for name in rest:
            if name in ("ipfs",):
                name = "p2p"
            if name not in _CODES:
                raise ValueError(
                    f"{str(self)!r} is not a multiaddr: the protocol {name!r} is not known, use one of "
                    f"{', '.join(_CODES)}"
                )
            value = None if name in _BARE else next(rest, None)
            if value is None and name not in _BARE:
                raise ValueError(f"{str(self)!r} is not a multiaddr: no value stands after {name!r}")
            parts.append((name, value))
        return parts

    def protocols(self) -> List[Protocol]:
        """Returns the protocols of the address in their order."""
        return [Protocol(_CODES[name], name) for name, _ in self._parts()]

    keys = protocols

    def values(self) -> List[Optional[str]]:
        """Returns the value of each protocol, or None where it has none."""
        return [value for _, value in self._parts()]

    def items(self) -> List[Tuple[Protocol, Optional[str]]]:
        """Returns (protocol, value) pairs in their order."""
        return list(zip(self.protocols(), self.values()))

    def value_for_protocol(self, proto: Union[str, int]) -> Optional[str]:
        """Returns the value of a protocol. Raises LookupError if the address has no such protocol.

        Args:
            proto: Name or code of the protocol.
        """
        for protocol, value in self.items():
            if proto in (protocol.name, protocol.code):
                return value
        raise LookupError(f"{str(self)!r} has no {proto}: it has {', '.join(name for name, _ in self._parts())}")

    def get(self, key: Union[str, int], default: Any = None) -> Any:
        """Returns the value of a protocol, or a default.

        Args:
            key: Name or code of the protocol.
            default: Result if the address has no such protocol.
        """
        try:
            return self.value_for_protocol(key)
        except LookupError:
            return default

    def __getitem__(self, key: Any) -> Any:
        return self.value_for_protocol(key) if isinstance(key, str) else str(self)[key]

    def encapsulate(self, other: str) -> "Multiaddr":
        """Returns this address followed by another.

        Args:
            other: The other address.
        """
        return Multiaddr(str(self).rstrip("/") + str(Multiaddr(other)))

    def decapsulate(self, other: str) -> "Multiaddr":
        """Returns the address before the last occurrence of another.

        Args:
            other: The other address.
        """
        before, found, _ = str(self).rpartition(str(other))
        if not found or not before:
            raise ValueError(f"{str(self)!r} cannot be cut at {str(other)!r}, which is not in it behind its beginning")
        return Multiaddr(before)

    def split(self, sep: Union[None, str, int] = None, maxsplit: int = -1) -> List[Any]:
        """Returns the components, each as an address. With a separator it does the same as str.split.

        Args:
            sep: None, a separator, or the largest number of splits.
            maxsplit: Largest number of splits. -1: no limit.
        """
        if isinstance(sep, str):
            return str.split(self, sep, maxsplit)
        limit = maxsplit if sep is None else sep
        texts = ["/".join(("", name) if value is None else ("", name, value)) for name, value in self._parts()]
        if 0 <= limit < len(texts) - 1:
            texts[limit:] = ["".join(texts[limit:])]
        return [Multiaddr(text) for text in texts]


class PeerInfo(NamedTuple):
    """A peer and where it can be reached."""

    peer_id: PeerID
    addrs: Sequence[Multiaddr]


__all__ = ["Multiaddr", "PeerID", "PeerInfo", "Protocol"]
