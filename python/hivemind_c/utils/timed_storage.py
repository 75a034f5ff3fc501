"""What hivemind keeps under this name."""

from hivemind_c.dht.values import DHTExpiration, ValueWithExpiration, get_dht_time

__all__ = ["DHTExpiration", "ValueWithExpiration", "get_dht_time"]
