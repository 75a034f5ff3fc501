"""The options of a peer that the doctor looks at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Sequence


@dataclass
class Settings:
    """Options with which a peer would be started; the same names as in hivemind_c.DHT."""

    initial_peers: Sequence[str] = ()
    host_maddrs: Sequence[str] = ()
    announce_maddrs: Sequence[str] = ()
    identity_path: Optional[str] = None
    client_mode: bool = False
    run_id: Optional[str] = None
    timeout: float = 6.0
    environment: Optional[Mapping[str, str]] = None  #: None: os.environ
    swarm_key: Optional[str] = None  #: path of a file
    invite: Optional[str] = None  #: path of a file
    credentials: Dict[str, Any] = field(default_factory=dict)  #: both, as a node takes them; diagnose fills it
