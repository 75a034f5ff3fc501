"""The DHT: what the whole swarm knows, and everybody can ask for."""

from hivemind_c.dht.dht import DHT
from hivemind_c.dht.node import DHTNode
from hivemind_c.dht.routing import DHTID
from hivemind_c.dht.validation import CompositeValidator, DHTRecord, RecordValidatorBase, SignatureValidator
from hivemind_c.dht.values import DHTExpiration, DHTKey, DHTValue, Subkey, ValueWithExpiration, get_dht_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hivemind_c.dht.schema import BytesWithPublicKey, SchemaValidator

__all__ = [
    "BytesWithPublicKey",
    "CompositeValidator",
    "DHT",
    "DHTExpiration",
    "DHTID",
    "DHTKey",
    "DHTNode",
    "DHTRecord",
    "DHTValue",
    "RecordValidatorBase",
    "SchemaValidator",
    "SignatureValidator",
    "Subkey",
    "ValueWithExpiration",
    "get_dht_time",
]


def __getattr__(name: str) -> object:
    if name in ("BytesWithPublicKey", "SchemaValidator"):  # pydantic is needed for these alone
        from hivemind_c.dht import schema

        return getattr(schema, name)
    from hivemind_c._lazy import submodule

    return submodule(__name__, name)
