"""Small things that programs written for hivemind import from there."""

from hivemind_c.dht.values import DHTExpiration, ValueWithExpiration, get_dht_time
from hivemind_c.utils.asyncio import amap_in_executor, as_aiter, enter_asynchronously, switch_to_uvloop
from hivemind_c.utils.limits import increase_file_limit
from hivemind_c.utils.logging import get_logger, use_hivemind_log_handler
from hivemind_c.utils.mpfuture import MPFuture
from hivemind_c.utils.nested import nested_compare, nested_flatten, nested_map, nested_pack
from hivemind_c.utils.networking import LOCALHOST, choose_ip_address, log_visible_maddrs, reachable
from hivemind_c.utils.performance_ema import PerformanceEMA
from hivemind_c.utils.serializer import MSGPackSerializer, SerializerBase
from hivemind_c.utils.timed_storage import MAX_DHT_TIME_DISCREPANCY_SECONDS, TimedStorage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hivemind_c.compression import TensorDescriptor

__all__ = [
    "DHTExpiration",
    "LOCALHOST",
    "MAX_DHT_TIME_DISCREPANCY_SECONDS",
    "MPFuture",
    "MSGPackSerializer",
    "PerformanceEMA",
    "SerializerBase",
    "TensorDescriptor",
    "TimedStorage",
    "ValueWithExpiration",
    "amap_in_executor",
    "as_aiter",
    "choose_ip_address",
    "enter_asynchronously",
    "get_dht_time",
    "get_logger",
    "increase_file_limit",
    "log_visible_maddrs",
    "nested_compare",
    "nested_flatten",
    "nested_map",
    "nested_pack",
    "reachable",
    "switch_to_uvloop",
    "use_hivemind_log_handler",
]


def __getattr__(name: str) -> object:
    if name == "TensorDescriptor":
        from hivemind_c.compression import TensorDescriptor

        return TensorDescriptor
    from hivemind_c._lazy import submodule

    return submodule(__name__, name)
