"""The DHT: what the whole swarm knows, and everybody can ask for."""

from hivemind_c.dht.dht import DHT, DHTNode
from hivemind_c.dht.validation import DHTRecord, RecordValidatorBase, SignatureValidator
from hivemind_c.dht.values import DHTExpiration, DHTKey, DHTValue, Subkey, ValueWithExpiration, get_dht_time

__all__ = [
    "DHT",
    "DHTExpiration",
    "DHTKey",
    "DHTNode",
    "DHTRecord",
    "DHTValue",
    "RecordValidatorBase",
    "SignatureValidator",
    "Subkey",
    "ValueWithExpiration",
    "get_dht_time",
]
