"""Conditions that a program sets to what it stores and believes, besides those that every node keeps by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterable, Optional


@dataclass(frozen=True)
class DHTRecord:
    """A record as validators see it. Key, subkey and value are the bytes that are sent."""

    key: bytes
    subkey: Optional[bytes]
    value: bytes
    expiration_time: float


class RecordValidatorBase:
    """Base of checks for the records that this program stores or gets, for DHT(record_validators=[...]).

    A value that is stored passes sign_value(), one that was got passes validate() and strip_value(). Nodes that keep
    records for others do not run it.
    """

    #: who has the higher number is the first to sign, and the last to validate
    priority = 0

    def validate(self, record: DHTRecord) -> bool:
        """True if the record is to be believed.

        Args:
            record: The record as it was sent.
        """
        raise NotImplementedError

    def sign_value(self, record: DHTRecord) -> bytes:
        """Returns the value to send.

        Args:
            record: The record before it is sent.
        """
        return record.value

    def strip_value(self, record: DHTRecord) -> bytes:
        """Returns the value without the part that sign_value() added.

        Args:
            record: The record as it was sent.
        """
        return record.value

    def merge_with(self, other: "RecordValidatorBase") -> bool:
        """True if this validator has taken over the work of another one, which is then not added.

        Args:
            other: The other validator.
        """
        return False

    def bind(self, dht) -> None:
        """Called when the validator is added to a running DHT.

        Args:
            dht: The DHT.
        """


class CompositeValidator(RecordValidatorBase):
    """Several validators as one: they sign in order of priority, and validate and strip the other way round.

    Args:
        validators: The validators.
    """

    def __init__(self, validators: Iterable[RecordValidatorBase] = ()):
        self._validators = Validators()
        self.extend(validators)

    def extend(self, validators: Iterable[RecordValidatorBase]) -> None:
        """Adds validators.

        Args:
            validators: The validators.
        """
        self._validators.merge(check_validators(validators))

    @property
    def priority(self) -> int:  # type: ignore[override]
        """The highest priority of its validators."""
        return max((validator.priority for validator in self._validators.all), default=0)

    def validate(self, record: DHTRecord) -> bool:
        """True if each of the validators believes the record.

        Args:
            record: The record as it was sent.
        """
        try:
            self._validators.strip(record)
        except ValueError:
            return False
        return True

    def sign_value(self, record: DHTRecord) -> bytes:
        """Returns the value with what each validator adds to it.

        Args:
            record: The record before it is sent.
        """
        return self._validators.sign(record)

    def strip_value(self, record: DHTRecord) -> bytes:
        """Returns the value without what the validators have added.

        Args:
            record: The record as it was sent.
        """
        return self._validators.strip(record)

    def bind(self, dht) -> None:
        """Binds each validator to a DHT.

        Args:
            dht: The DHT.
        """
        for validator in self._validators.all:
            validator.bind(dht)


class SignatureValidator(RecordValidatorBase):
    """Names the mark by which keys and subkeys belong to this peer.

    Records with such a mark are signed with the Ed25519 key of the peer. Every node checks them, with or without this
    validator.
    """

    def __init__(self) -> None:
        self._mark: Optional[bytes] = None

    @property
    def local_public_key(self) -> bytes:
        """The mark b"[owner:PEERID]". Only this peer can store under a key or subkey that contains it."""
        if self._mark is None:
            raise ValueError(
                "this validator has no mark yet: the mark holds the DHT's peer ID; give the validator to a DHT first"
            )
        return self._mark

    def validate(self, record: DHTRecord) -> bool:
        """True: C has checked the signature already.

        Args:
            record: The record as it was sent.
        """
        return True  # the core has checked the signature, or the record would not have come so far

    def merge_with(self, other: RecordValidatorBase) -> bool:
        """True if another SignatureValidator is of the same peer.

        Args:
            other: The other validator.
        """
        return type(other) is type(self) and other._mark in (None, self._mark)

    def bind(self, dht) -> None:
        """Takes the mark from the peer ID of a DHT.

        Args:
            dht: The DHT.
        """
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
        bound = list(validators)
        for validator in bound:
            validator.bind(dht)
        self.merge(bound)

    def merge(self, validators: Iterable[RecordValidatorBase]) -> None:
        """Adds those whose work no other one takes over."""
        found = list(self.all)
        for validator in validators:
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
