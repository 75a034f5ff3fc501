"""Records that must look as a pydantic model says."""

from __future__ import annotations

import re
import sys
from typing import Any, Callable, Dict, Iterator, Optional, Type

from hivemind_c.dht.validation import DHTRecord, RecordValidatorBase
from hivemind_c.dht.values import unpack

try:
    import pydantic
    import pydantic_core.core_schema as core_schema
except ImportError:
    raise ImportError("SchemaValidator needs pydantic 2: pip install pydantic") from None

_OWNER = re.compile(rb"\[owner:[0-9A-Za-z]{40,64}\]")


class BytesWithPublicKey(bytes):
    """In a schema: bytes with the mark of an owner.

    In `Dict[BytesWithPublicKey, float]` each peer has one subkey.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return core_schema.no_info_after_validator_function(cls._check, core_schema.bytes_schema(strict=True))

    @classmethod
    def __get_validators__(cls) -> Iterator[Callable[[bytes], bytes]]:
        yield cls._check  # for pydantic.v1, which takes the TypeError of another kind than bytes for a refusal

    @classmethod
    def _check(cls, value: bytes) -> bytes:
        if not _OWNER.search(value):
            raise ValueError("it has no [owner:PEERID] mark")
        return value


class _FieldOfV1:
    """A field of a model of pydantic.v1, with the method of a pydantic.TypeAdapter that is used here."""

    def __init__(self, schema: Any, name: str):
        self._schema, self._name = schema, name

    def validate_python(self, value: Any, strict: bool) -> None:
        """Raises an error if the value does not fit, or only as another one: pydantic.v1 makes an int of "1"."""
        parsed, errors = self._schema.__fields__[self._name].validate(value, {}, loc=self._name, cls=self._schema)
        if errors:
            raise sys.modules["pydantic.v1"].ValidationError([errors], self._schema)
        model = self._schema.construct(**{self._name: parsed})
        (plain,) = model.dict(include={self._name}, by_alias=True, exclude_unset=True).values()
        if strict and plain != value:
            raise ValueError(f"{value!r} is not of the type of {self._name}, but would become {plain!r}")


def _fields_of(schema: Any) -> Optional[Dict[str, Any]]:
    """Returns {field: what validates it} of a model of pydantic, or of pydantic.v1. None: it is no such class."""
    if not isinstance(schema, type):
        return None
    if issubclass(schema, pydantic.BaseModel):
        return {
            name: pydantic.TypeAdapter(field.rebuild_annotation()) for name, field in schema.model_fields.items()
        }
    v1 = sys.modules.get("pydantic.v1")  # a program that made a model has imported it
    if v1 is not None and issubclass(schema, v1.BaseModel):
        return {name: _FieldOfV1(schema, name) for name in schema.__fields__}
    return None


class SchemaValidator(RecordValidatorBase):
    """Accepts a record only if it fits a pydantic model whose fields are keys.

    A field of type `Dict[K, V]` is a key with subkeys. Types are strict: the text "1" is no int.

    Args:
        schema: The model, a class derived from pydantic.BaseModel, or from that of pydantic.v1.
        allow_extra_keys: Accept keys that are no field.
        prefix: Text before each field, with "_" between them. None: the field alone is the key.
    """

    def __init__(self, schema: Type[Any], allow_extra_keys: bool = True, prefix: Optional[str] = None):
        fields = _fields_of(schema)
        if fields is None:
            raise TypeError(
                f"a schema must be a class derived from pydantic.BaseModel or pydantic.v1.BaseModel, not {schema!r}"
            )
        self._extra = bool(allow_extra_keys)
        before = "" if prefix is None else f"{prefix}_"
        self._fields = {(before + name).encode(): adapter for name, adapter in fields.items()}

    def validate(self, record: DHTRecord) -> bool:
        """True if the record fits the model. Raises the error of pydantic if it does not.

        Args:
            record: The record.
        """
        adapter = self._fields.get(record.key)
        if adapter is None:
            return self._extra
        value = unpack(record.value)
        if record.subkey is not None:
            value = {unpack(record.subkey): value}
        adapter.validate_python(value, strict=True)  # its error is the reason that the log gives
        return True

    def merge_with(self, other: RecordValidatorBase) -> bool:
        """Takes over the fields of another SchemaValidator, unless they contradict these. True if it did.

        Args:
            other: The other validator.
        """
        if type(other) is not SchemaValidator or other._extra != self._extra:
            return False
        if any(self._fields.get(key, adapter) is not adapter for key, adapter in other._fields.items()):
            return False  # two models for one key: both are asked
        self._fields.update(other._fields)
        return True
