"""All calls of a program written for hivemind 1.1.12 are here under the same names, with the same defaults."""

import inspect

import hivemind_c
from hivemind_c import DHT

MUST = inspect.Parameter.empty

OPTIONS = dict(
    initial_peers=None, start=MUST, daemon=True, num_workers=4, record_validators=(), shutdown_timeout=3, await_ready=True, announce_maddrs=None, identity_path=None,
    client_mode=False, wait_timeout=3, bootstrap_timeout=None, ensure_bootstrap_success=True, bucket_size=20, num_replicas=5, parallel_rpc=None, cache_size=None,
    cache_locally=True, cache_nearest=1, refresh_timeout=None, blacklist_time=5, backoff_rate=2, startup_timeout=15, authorizer=None,
)  # fmt: skip
METHODS = {
    "get": dict(key=MUST, latest=False, return_future=False, effort=MUST),
    "store": dict(key=MUST, value=MUST, expiration_time=MUST, subkey=None, return_future=False, effort=MUST),
    "get_visible_maddrs": dict(latest=False),
    "add_validators": dict(record_validators=MUST),
    "run_coroutine": dict(coro=MUST, return_future=False),
    "shutdown": {},
}


def defaults_of(function):
    return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items() if name != "self"}


def test_every_option_has_its_name_and_default():
    ours = defaults_of(DHT.__init__)
    assert OPTIONS.items() <= ours.items()
    assert {"host_maddrs", "use_ipfs", "use_relay", "use_auto_relay"} <= ours.keys()
    kinds = inspect.signature(DHT.__init__).parameters
    assert all(kinds[name].kind is inspect.Parameter.KEYWORD_ONLY for name in ours if name not in ("initial_peers", "options"))


def test_every_method_is_called_as_it_was():
    for name, arguments in METHODS.items():
        assert defaults_of(getattr(DHT, name)) == arguments, name
    assert isinstance(DHT.peer_id, property) and isinstance(DHT.client_mode, property)
    assert defaults_of(hivemind_c.get_dht_time) == {}
