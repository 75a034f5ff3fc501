"""MessagePack for a program's own values and classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Dict, TypeVar

import msgpack

Class = TypeVar("Class", bound=type)


class SerializerBase(ABC):
    """Base of classes that turn values into bytes and back."""

    @staticmethod
    @abstractmethod
    def dumps(obj: object) -> bytes:
        """Returns a value as bytes.

        Args:
            obj: The value.
        """

    @staticmethod
    @abstractmethod
    def loads(buf: bytes) -> object:
        """Returns the value that bytes hold.

        Args:
            buf: The bytes.
        """


class MSGPackSerializer(SerializerBase):
    """Packs None, numbers, text, bytes, lists, tuples, dicts, and classes that ext_serializable has registered.

    The DHT does not use it: it stores plain values only.
    """

    _TUPLE = 0x40
    _by_code: Dict[int, Any] = {}
    _codes: Dict[Any, int] = {}

    @classmethod
    def ext_serializable(cls, type_code: int) -> Callable[[Class], Class]:
        """Returns a decorator that registers a class with methods packb() -> bytes and unpackb(bytes), a classmethod.

        Args:
            type_code: Number of the class, from 0 to 127 but not 64.
        """
        if (
            isinstance(type_code, bool)
            or not isinstance(type_code, int)
            or not 0 <= type_code <= 127
            or type_code == cls._TUPLE
        ):
            raise ValueError(
                f"type_code must be an int from 0 to 127 and not {cls._TUPLE}, which tuples have: {type_code!r}"
            )

        def wrap(kind: Class) -> Class:
            missing = [name for name in ("packb", "unpackb") if not callable(getattr(kind, name, None))]
            if missing:
                raise TypeError(f"{kind.__name__} cannot be packed: it has no method {' and no '.join(missing)}")
            if type_code in cls._by_code:
                raise ValueError(
                    f"type_code {type_code} belongs to {cls._by_code[type_code].__name__}: choose another for "
                    f"{kind.__name__}"
                )
            cls._by_code[type_code], cls._codes[kind] = kind, type_code
            return kind

        return wrap

    @classmethod
    def _encode(cls, value: Any) -> Any:
        code = cls._codes.get(type(value))
        if code is not None:
            return msgpack.ExtType(code, value.packb())
        if isinstance(value, tuple):
            return msgpack.ExtType(cls._TUPLE, cls.dumps(list(value)))
        for kind in (bool, int, float, str, bytes, list, dict):
            if isinstance(value, kind):
                return kind(value)
        raise TypeError(
            f"a {type(value).__name__} cannot be packed: convert it, or decorate its class with "
            "MSGPackSerializer.ext_serializable"
        )

    @classmethod
    def _decode(cls, code: int, data: bytes) -> Any:
        if code == cls._TUPLE:
            return tuple(cls.loads(data))  # type: ignore[arg-type]
        if code not in cls._by_code:
            raise ValueError(
                f"these bytes hold a class of type_code {code}, which is not known here: import the module that "
                "defines it"
            )
        return cls._by_code[code].unpackb(data)

    @classmethod
    def dumps(cls, obj: object) -> bytes:  # type: ignore[override]
        """Returns a value as bytes.

        Args:
            obj: The value.
        """
        return msgpack.packb(obj, default=cls._encode, use_bin_type=True, strict_types=True)

    @classmethod
    def loads(cls, buf: bytes) -> object:  # type: ignore[override]
        """Returns the value that bytes hold.

        Args:
            buf: Result of dumps().
        """
        return msgpack.unpackb(buf, ext_hook=cls._decode, raw=False, strict_map_key=False)


__all__ = ["MSGPackSerializer", "SerializerBase"]
