"""Records that must look as a pydantic model says."""

from __future__ import annotations

import re
from typing import Any, Optional, Type

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
    def _check(cls, value: bytes) -> bytes:
        if not _OWNER.search(value):
            raise ValueError("it has no [owner:PEERID] mark")
        return value


class SchemaValidator(RecordValidatorBase):
    """Accepts a record only if it fits a pydantic model whose fields are keys.

    A field of type `Dict[K, V]` is a key with subkeys. Types are strict: the text "1" is no int.

    Args:
        schema: The model, a class derived from pydantic.BaseModel.
        allow_extra_keys: Accept keys that are no field.
        prefix: Text before each field, with "_" between them. None: the field alone is the key.
    """

    def __init__(self, schema: Type["pydantic.BaseModel"], allow_extra_keys: bool = True, prefix: Optional[str] = None):
        if not (isinstance(schema, type) and issubclass(schema, pydantic.BaseModel)):
            raise TypeError(f"a schema must be a class derived from pydantic.BaseModel, not {schema!r}")
        self._extra = bool(allow_extra_keys)
        before = "" if prefix is None else f"{prefix}_"
        self._fields = {
            (before + name).encode(): pydantic.TypeAdapter(field.rebuild_annotation())
            for name, field in schema.model_fields.items()
        }

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
