"""The swarm's state, downloaded and taken over: the part of TrainingStateAverager for programs without an Optimizer."""

from __future__ import annotations

import logging
from typing import Any, Dict, List, Optional, Tuple

from hivemind_c.averaging import DecentralizedAverager
from hivemind_c.optim.state_parts import _StateParts

logger = logging.getLogger("hivemind_c.optim")


class StateLoading(_StateParts):
    """The part of TrainingStateAverager that loads the swarm's state."""

    _checked: Any = None  # metadata of the state that was downloaded, and fits

    def load_state_from_peers(  # type: ignore[override]
        self, wait: bool = True, timeout: Optional[float] = None, epoch_least: int = 0
    ) -> bool:
        """Replaces the state by the one that a majority of the swarm offers. False: there is none, and nothing changed.

        Args:
            wait: Must be True, because nothing may train while parameters change.
            timeout: Longest time in seconds in which nothing of it arrives. None: 600.
            epoch_least: Oldest epoch whose state is accepted.
        """
        self.check_load(wait)
        self.background.settle()
        taken = self.take_over_state(self.fetch_state(timeout, epoch_least))
        if taken:
            self.background.drop()  # what it made is of the state before
        return taken

    def check_load(self, wait: bool) -> None:
        """Raises ValueError unless a load is waited for.

        Args:
            wait: Must be True, because nothing may train while parameters change.
        """
        if not wait:
            raise ValueError(
                "load_state_from_peers does not support wait=False: it changes parameters, so nothing may train "
                "meanwhile; remove wait=False"
            )

    def fetch_state(
        self, timeout: Optional[float], epoch_least: int
    ) -> Optional[Tuple[Dict[str, Any], List[Any]]]:
        """Downloads the state that a majority of the swarm offers, and changes nothing. None: there is none.

        Args:
            timeout: Longest time in seconds in which nothing of it arrives. None: 600.
            epoch_least: Oldest epoch whose state is accepted.
        """
        loaded = DecentralizedAverager.load_state_from_peers(self, timeout=timeout, epoch_least=epoch_least)
        self._checked = None if loaded is None else loaded[0]
        return loaded

    def take_over_state(self, loaded: Optional[Tuple[Dict[str, Any], List[Any]]]) -> bool:
        """Replaces the state by one that was downloaded. False: it was nothing, or does not fit; nothing has changed.

        Args:
            loaded: Result of fetch_state().
        """
        try:
            if loaded is not None:
                self.set_current_state(*loaded)
        except ValueError as error:
            logger.warning("could not load the swarm's state, will retry: %s", error)
            return False
        finally:
            self._checked = None
        return loaded is not None
