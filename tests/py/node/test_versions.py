"""Real processes that speak different versions of the protocol: this one, and a next one with the same messages.

A node's versions are no public setting: the tests put them between the shim and the extension.
"""

import json

import pytest

from hivemind_c import HivemindError
from support import PATIENCE, eventually

#: Averages its number with the others when told so, and says what it sees of them.
PEER = """
    import json, sys
    import numpy
    from hivemind_c import DHT, DecentralizedAverager

    config = json.loads(sys.argv[1])
    dht = DHT(config["peers"], host_maddrs="/ip4/127.0.0.1/tcp/0", start=False, wait_timeout=30, startup_timeout=90)
    dht._node._config["versions"] = tuple(config["versions"])
    dht.run_in_background()
    tensor = numpy.full(100_000, config["value"], dtype=numpy.float32)
    averager = DecentralizedAverager([tensor], dht, start=True, prefix="versions", min_matchmaking_time=60)
    print(dht.get_visible_maddrs()[0], flush=True)
    for line in sys.stdin:
        control = averager.step(weight=1, wait=False, timeout=60, expected=int(line))
        error = control.exception()
        print(json.dumps({
            "error": error and str(error),
            "values": sorted(set(tensor.tolist())),
            "versions": {peer.peer_id: peer.version for peer in dht._node.peers()},
        }), flush=True)
"""

OLD, BOTH, NEW = (1, 1), (1, 2), (2, 2)


def speaking(versions, **options):
    """A node that speaks these versions, not started yet."""
    from hivemind_c import Node

    node = Node("/ip4/127.0.0.1/tcp/0", start=False, **options)
    node._config["versions"] = versions
    return node


def test_processes_of_both_versions_average_together(program):
    speech = [OLD, BOTH, BOTH, OLD]
    peers, ids = [], []
    for i, versions in enumerate(speech):
        known = [address for address in ids[:1]]
        peers.append(program(PEER, json.dumps({"versions": versions, "value": i, "peers": known})))
        ids.append(peers[-1].line())
    for peer in peers:
        peer.say(f"{len(peers)}")
    told = [json.loads(peer.line()) for peer in peers]
    assert [one["error"] for one in told] == [None] * len(peers)
    assert [one["values"] for one in told] == [[1.5]] * len(peers)
    names = [address.rsplit("/", 1)[1] for address in ids]
    for i, one in enumerate(told):
        for k, name in enumerate(names):
            if name in one["versions"]:
                assert one["versions"][name] == min(speech[i][1], speech[k][1])
    assert told[1]["versions"][names[2]] == 2 and told[1]["versions"][names[0]] == 1


def test_process_without_common_version_names_the_remedy(program):
    old = program(PEER, json.dumps({"versions": OLD, "value": 0, "peers": []}))
    address = old.line()
    with speaking(NEW, initial_peers=address) as node:
        node.start()
        with pytest.raises(HivemindError, match="this peer version 2: upgrade hivemind_c there") as caught:
            node.wait_for_peers(1, timeout=PATIENCE)
        assert caught.value.cause == "protocol_version"
        with speaking(BOTH, initial_peers=[address, node.addresses[0]]) as between:
            between.start()
            assert {peer.version for peer in between.wait_for_peers(2, timeout=PATIENCE)} == {1, 2}
            assert between.echo(node.peer_id, b"over") == b"over"
            assert eventually(lambda: [peer.version for peer in node.peers()] == [2])


@pytest.mark.parametrize("versions", [(2, 1), (0, 1), (1, 65536)])
def test_invalid_range_of_versions_is_refused(versions):
    with pytest.raises(HivemindError, match="versions"):
        speaking(versions).start()
