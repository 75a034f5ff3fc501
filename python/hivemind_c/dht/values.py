"""Values on the wire: MessagePack, with tuples kept as tuples. Bytes from others are bounded, and never
become code.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import msgpack

DHTKey = Any  #: str, bytes, or any other kind that a value may have, but None
Subkey = Any
DHTValue = Any
DHTExpiration = float

DEPTH_MAX = 64  #: values within values
SIZE_MAX = 1 << 16  #: bytes of a packed value: the core's limit, so that nothing larger is unpacked
_TUPLE = 1
_OTHER_KEYS = b"\xc1key:"  #: before keys of other kinds: a byte that begins no text and no packed value
_LEAVES = (type(None), bool, int, float, str, bytes)
_KINDS = "None, bool, int, float, str, bytes, list, tuple and dict"


class ValueWithExpiration(NamedTuple):
    """The result of get(); of a key with subkeys the value is a dict of such."""

    value: Any
    expiration_time: DHTExpiration  #: in get_dht_time()


def get_dht_time() -> DHTExpiration:
    """Now, in seconds. Only this machine counts by it: what travels is how much longer a record lives."""
    return time.time()


def ttl_ms(expiration_time: DHTExpiration) -> int:
    """How much longer a record lives that ends then; 0 or less: its time has passed."""
    if isinstance(expiration_time, bool) or not isinstance(expiration_time, (int, float)):
        raise TypeError(
            f"expiration_time must be a number of seconds, such as get_dht_time() + 60, not {expiration_time!r}"
        )
    left = expiration_time - get_dht_time()
    if math.isnan(left):
        raise ValueError("expiration_time is not a number (NaN): give for example get_dht_time() + 60")
    return math.ceil(max(min(left, 1e9), -1e9) * 1000)


def key_bytes(key: DHTKey) -> bytes:
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, (bytes, bytearray)):
        return bytes(key)
    if key is None:
        raise TypeError("a key must not be None: give str, bytes, a number or a tuple of such")
    if isinstance(key, int) and not -(2**63) <= key < 2**64:  # a DHTID
        return _OTHER_KEYS + str(int(key)).encode()
    try:
        return _OTHER_KEYS + _pack(key, 0)
    except TypeError as error:
        raise TypeError(f"a key cannot be {key!r}: {error}") from None


def pack(value: Any) -> bytes:
    """TypeError for what cannot travel, ValueError for what is too deep, too large a number, or too large."""
    packed = _pack(value, 0)
    if len(packed) > SIZE_MAX:
        raise ValueError(
            f"the value has {len(packed)} bytes when packed, and the limit is {SIZE_MAX}: store it in parts"
        )
    return packed


def _pack(value: Any, depth: int) -> bytes:
    if depth > DEPTH_MAX:
        raise ValueError(f"the value is nested more than {DEPTH_MAX} levels deep: flatten it")
    try:
        return msgpack.packb(_plain(value, depth), strict_types=True, use_bin_type=True)
    except OverflowError:
        raise ValueError("an int in the value needs more than 64 bits: store it as str or bytes") from None


def _plain(value: Any, depth: int) -> Any:
    """The same value from MessagePack's own types, whatever was derived from them."""
    if depth > DEPTH_MAX:
        raise ValueError(f"the value is nested more than {DEPTH_MAX} levels deep: flatten it")
    if value is None or type(value) in _LEAVES:
        return value
    if isinstance(value, tuple):
        return msgpack.ExtType(_TUPLE, _pack(list(value), depth))
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_plain(key, depth + 1): _plain(item, depth + 1) for key, item in value.items()}
    for kind in (int, float, str, bytes):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(
        f"the DHT keeps {_KINDS}, and values made of them, not {type(value).__module__}.{type(value).__qualname__}: "
        "convert it first"
    )


def unpack(packed: bytes) -> Any:
    """ValueError for anything that pack would not have made."""
    if len(packed) > SIZE_MAX:
        raise ValueError(f"the value has {len(packed)} bytes, and the limit is {SIZE_MAX}")
    try:
        value = _unpack(packed, 0)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise ValueError(f"these bytes are not a value of the DHT: {error}") from None
    return value


def _unpack(packed: bytes, depth: int) -> Any:
    def tuple_of(code: int, inner: bytes) -> tuple:
        value = _unpack(inner, depth + 1) if code == _TUPLE and depth < DEPTH_MAX else None
        if not isinstance(value, list):
            raise ValueError("it holds an unknown extension, or is nested too deep")
        return tuple(value)

    value = msgpack.unpackb(packed, ext_hook=tuple_of, strict_map_key=False, raw=False)
    _check(value)
    return value


def _check(value: Any) -> None:
    """Only known types (MessagePack knows more, such as timestamps), and not too deep; without recursion."""
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        below: list = []
        for item in level:
            if isinstance(item, dict):
                below += item.keys()
                below += item.values()
            elif isinstance(item, (list, tuple)):
                below += item
            elif type(item) not in _LEAVES:
                raise ValueError(f"it holds the type {type(item).__name__}, which is not allowed")
        level = below
        if not level:
            return
    raise ValueError(f"it is nested more than {DEPTH_MAX} levels deep")
