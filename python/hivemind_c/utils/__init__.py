"""Small things that programs written for hivemind import from there."""

from hivemind_c.dht.values import ValueWithExpiration, get_dht_time
from hivemind_c.utils.logging import get_logger, use_hivemind_log_handler
from hivemind_c.utils.networking import log_visible_maddrs, reachable

__all__ = ["ValueWithExpiration", "get_dht_time", "get_logger", "log_visible_maddrs", "reachable", "use_hivemind_log_handler"]
