"""Which modules of hivemind_c answer for which of hivemind and lightning_hivemind, and why some of theirs have no
counterpart."""

from __future__ import annotations

import difflib
from typing import Callable, Dict, List, Tuple

#: hivemind's module: those of hivemind_c, in the order in which a name is looked for
MODULES: Dict[str, Tuple[str, ...]] = {
    "hivemind": (
        "hivemind_c",
        "hivemind_c.utils",
        "hivemind_c.p2p",
        "hivemind_c.compression",
        "hivemind_c.optim",
        "hivemind_c.averaging",
        "hivemind_c.dht",
    ),
    "hivemind.averaging": ("hivemind_c.averaging",),
    "hivemind.averaging.allreduce": (),
    "hivemind.averaging.averager": ("hivemind_c.averaging.averager",),
    "hivemind.averaging.control": ("hivemind_c.averaging.control",),
    "hivemind.averaging.group_info": ("hivemind_c.averaging.group_info",),
    "hivemind.compression": ("hivemind_c.compression",),
    "hivemind.compression.adaptive": ("hivemind_c.compression.adaptive",),
    "hivemind.compression.base": ("hivemind_c.compression.base", "hivemind_c.compression.codecs"),
    "hivemind.compression.floating": ("hivemind_c.compression.floating",),
    "hivemind.compression.quantization": ("hivemind_c.compression.quantization",),
    "hivemind.compression.serialization": ("hivemind_c.compression.serialization",),
    "hivemind.dht": ("hivemind_c.dht",),
    "hivemind.dht.crypto": ("hivemind_c.dht.crypto",),
    "hivemind.dht.dht": ("hivemind_c.dht.dht",),
    "hivemind.dht.node": ("hivemind_c.dht.node",),
    "hivemind.dht.routing": ("hivemind_c.dht.routing", "hivemind_c.dht.values"),
    "hivemind.dht.schema": ("hivemind_c.dht.schema",),
    "hivemind.dht.validation": ("hivemind_c.dht.validation",),
    "hivemind.hivemind_cli": ("hivemind_c.cli",),
    "hivemind.hivemind_cli.run_dht": ("hivemind_c.cli.dht",),
    "hivemind.optim": ("hivemind_c.optim",),
    "hivemind.optim.grad_averager": ("hivemind_c.optim.grad_averager",),
    "hivemind.optim.grad_scaler": ("hivemind_c.optim.grad_scaler",),
    "hivemind.optim.optimizer": ("hivemind_c.optim.optimizer",),
    "hivemind.optim.power_sgd_averager": ("hivemind_c.optim.power_sgd_averager",),
    "hivemind.optim.progress_tracker": ("hivemind_c.optim.progress_tracker",),
    "hivemind.optim.state_averager": ("hivemind_c.optim.state_averager",),
    "hivemind.optim.training_averager": ("hivemind_c.optim.training_averager",),
    "hivemind.p2p": ("hivemind_c.p2p",),
    "hivemind.p2p.p2p_daemon_bindings": ("hivemind_c.p2p",),
    "hivemind.p2p.p2p_daemon_bindings.datastructures": ("hivemind_c.p2p",),
    "hivemind.proto": (),
    "hivemind.proto.runtime_pb2": (),
    "hivemind.utils": ("hivemind_c.utils",),
    "hivemind.utils.asyncio": ("hivemind_c.utils.asyncio",),
    "hivemind.utils.crypto": ("hivemind_c.utils.crypto",),
    "hivemind.utils.limits": ("hivemind_c.utils.limits",),
    "hivemind.utils.logging": ("hivemind_c.utils.logging",),
    "hivemind.utils.math": ("hivemind_c.utils.math",),
    "hivemind.utils.mpfuture": ("hivemind_c.utils.mpfuture",),
    "hivemind.utils.multiaddr": ("hivemind_c.p2p",),
    "hivemind.utils.multiaddr.multiaddr": ("hivemind_c.p2p",),
    "hivemind.utils.nested": ("hivemind_c.utils.nested",),
    "hivemind.utils.networking": ("hivemind_c.utils.networking",),
    "hivemind.utils.performance_ema": ("hivemind_c.utils.performance_ema",),
    "hivemind.utils.serializer": ("hivemind_c.utils.serializer",),
    "hivemind.utils.streaming": ("hivemind_c.compression.serialization",),
    "hivemind.utils.tensor_descr": ("hivemind_c.compression.base",),
    "hivemind.utils.timed_storage": ("hivemind_c.utils.timed_storage",),
    "lightning_hivemind": (),
    "lightning_hivemind.strategy": ("hivemind_c.strategy",),
}

_NUMBERS = ("NONE", "MEANSTD_16BIT", "FLOAT16", "QUANTILE_8BIT", "UNIFORM_8BIT", "BLOCKWISE_8BIT")

#: names that are called otherwise here: {module: {name: "module:name" of hivemind_c}}
ALIASES: Dict[str, Dict[str, str]] = {
    "hivemind": {
        "HivemindStrategy": "hivemind_c.strategy:HivemindStrategy",
        "CollaborativeStrategy": "hivemind_c.strategy:CollaborativeStrategy",
    },
    "hivemind.averaging.allreduce": {"AveragingMode": "hivemind_c.averaging.control:AveragingMode"},
    "hivemind.proto.runtime_pb2": {
        "CompressionType": "hivemind_c.compression:CompressionType",
        "Tensor": "hivemind_c.compression:SerializedTensor",
        **{name: f"hivemind_c.compression.base:CompressionType.{name}" for name in _NUMBERS},
    },
    "lightning_hivemind": {"HivemindStrategy": "hivemind_c.strategy:HivemindStrategy"},
}

PROGRAMS = {"hivemind.hivemind_cli.run_dht"}  #: modules for python -m

_ROUNDS = (
    "rounds of averaging run in C and have no parts in Python to replace; "
    "DecentralizedAverager has all that programs call"
)
_NODE = "the DHT runs in C; hivemind_c.DHT and DHTNode have all that programs call"
_DAEMON = "there is no libp2p daemon and no RPC for programs; peers talk through DHT and the averagers"
_EXPERTS = "Mixture of Experts is out of its scope"

#: names without a counterpart, and why: a module stands for all in it
ABSENT: Dict[str, str] = {
    "hivemind.averaging.allreduce": _ROUNDS,
    "hivemind.averaging.key_manager": _ROUNDS,
    "hivemind.averaging.load_balancing": _ROUNDS,
    "hivemind.averaging.matchmaking": _ROUNDS,
    "hivemind.averaging.partition": _ROUNDS,
    "hivemind.dht.protocol": _NODE,
    "hivemind.dht.storage": _NODE,
    "hivemind.dht.traverse": _NODE,
    "hivemind.hivemind_cli.run_server": _EXPERTS,
    "hivemind.moe": _EXPERTS,
    **{
        f"hivemind.{name}": _EXPERTS
        for name in (
            "ModuleBackend",
            "RemoteExpert",
            "RemoteMixtureOfExperts",
            "RemoteSwitchMixtureOfExperts",
            "Server",
            "register_expert_class",
        )
    },
    **{
        f"{where}.{name}": _DAEMON
        for where in ("hivemind", "hivemind.p2p")
        for name in ("P2P", "P2PContext", "P2PDaemonError", "P2PHandlerError", "ServicerBase", "StubBase")
    },
    "hivemind.p2p.p2p_daemon": _DAEMON,
    "hivemind.p2p.p2p_daemon_bindings.control": _DAEMON,
    "hivemind.p2p.p2p_daemon_bindings.p2pclient": _DAEMON,
    "hivemind.p2p.p2p_daemon_bindings.utils": _DAEMON,
    "hivemind.p2p.servicer": _DAEMON,
    "hivemind.proto.averaging_pb2": _ROUNDS,
    "hivemind.proto.dht_pb2": _NODE,
    "hivemind.utils.auth": (
        "a swarm cannot be closed by tokens; keep strangers off by the network (docs/explanation/security-model.md)"
    ),
}


def nearest(where: str, name: str, public: Callable[[str], List[str]]) -> str:
    """The name that a program most likely means: one like it in the same module, else the same name elsewhere, else
    one like it elsewhere."""
    if where not in MODULES:
        return nearest(where.rpartition(".")[0], where.rpartition(".")[2], public) if "." in where else ""
    alike = difflib.get_close_matches(name, public(where), 1, 0.7)
    if alike:
        return f"{where}.{alike[0]}"
    for cutoff in (1, 0.75):
        for module in MODULES:
            if module.startswith(where.partition(".")[0]) and (
                alike := difflib.get_close_matches(name, public(module), 1, cutoff)
            ):
                return f"{module}.{alike[0]}"
    return ""
