"""Conditions that a program sets to what it stores and believes, besides those that every node keeps by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterable, Optional


@dataclass(frozen=True)
class DHTRecord:
    """A record as validators see it: key, subkey and value as the bytes that travel."""

    key: bytes
    subkey: Optional[bytes]
    value: bytes
    expiration_time: float


class RecordValidatorBase:
    """Derive from it and give it to DHT(record_validators=[...]): what is stored goes through sign_value, what is got through validate and
    strip_value. It runs in this program, for what this program stores and gets; nodes that keep records for others do not ask it."""

    #: who has the higher number is the first to sign, and the last to validate
    priority = 0

    def validate(self, record: DHTRecord) -> bool:
        """Whether the record, as it travels, is to be believed."""
        raise NotImplementedError

    def sign_value(self, record: DHTRecord) -> bytes:
        """The value as it is to travel."""
        return record.value

    def strip_value(self, record: DHTRecord) -> bytes:
        """The value again without what sign_value added."""
        return record.value

    def merge_with(self, other: "RecordValidatorBase") -> bool:
        """True if this validator has taken over what the other does, which then is not added."""
        return False

    def bind(self, dht) -> None:
        """Called when the validator is added to a DHT that runs."""


class SignatureValidator(RecordValidatorBase):
    """Names the mark by which keys and subkeys are this peer's own. Records with such a mark are signed with the peer's Ed25519 key and
    checked by every node, with or without this validator."""

    def __init__(self) -> None:
        self._mark: Optional[bytes] = None

    @property
    def local_public_key(self) -> bytes:
        """b"[owner:PEERID]": put it into a key or a subkey, and only this peer can store there."""
        if self._mark is None:
            raise ValueError("this validator has no mark yet: the mark holds the DHT's peer ID; give the validator to a DHT first")
        return self._mark

    def validate(self, record: DHTRecord) -> bool:
        return True  # the core has checked the signature, or the record would not have come so far

    def merge_with(self, other: RecordValidatorBase) -> bool:
        return type(other) is type(self) and other._mark in (None, self._mark)

    def bind(self, dht) -> None:
        mark = f"[owner:{dht.peer_id}]".encode()
        if self._mark not in (None, mark):
            raise ValueError("this SignatureValidator belongs to another DHT: make one for each")
        self._mark = mark


def check_validators(validators) -> list[RecordValidatorBase]:
    found = [validators] if isinstance(validators, RecordValidatorBase) else list(validators)
    for validator in found:
        if not isinstance(validator, RecordValidatorBase):
            raise TypeError(f"a validator must be derived from hivemind_c.dht.RecordValidatorBase, not {validator!r}")
    return found


class Validators:
    """All validators of a DHT as one: signs in order of priority, validates and strips the other way round."""

    def __init__(self) -> None:
        self.all: tuple[RecordValidatorBase, ...] = ()

    def add(self, validators: Iterable[RecordValidatorBase], dht) -> None:
        found = list(self.all)
        for validator in validators:
            validator.bind(dht)
            if not any(known is validator or known.merge_with(validator) for known in found):
                found.append(validator)
        self.all = tuple(sorted(found, key=lambda validator: -validator.priority))

    def sign(self, record: DHTRecord) -> bytes:
        """The value as it travels. ValueError if one of them would not believe it."""
        whole = record
        for validator in self.all:
            whole = replace(whole, value=validator.sign_value(whole))
        if self.all:
            self.strip(whole)
        return whole.value

    def strip(self, record: DHTRecord) -> bytes:
        """The value as it was. ValueError if one of them does not believe it."""
        for validator in reversed(self.all):
            if not validator.validate(record):
                raise ValueError(f"{type(validator).__name__} does not accept the record")
            record = replace(record, value=validator.strip_value(record))
        return record.value
