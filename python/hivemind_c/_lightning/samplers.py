"""Seeds of the DistributedSamplers of a peer's ranks: other peers read the data in another order."""

from __future__ import annotations

import os
from typing import Any

from torch.utils.data import DistributedSampler

from hivemind_c._lightning.patches import Patches, mark_of


def sampler_seed(peer_id: str) -> int:
    """A seed for the samplers of this peer's ranks, from its name and Lightning's seed."""
    return int(os.environ.get("PL_GLOBAL_SEED", 0)) ^ mark_of(peer_id) & 0x7FFFFFFF


def give_seed(loader: Any, seed: int, patches: Patches) -> None:
    """Sets the seed of a loader's DistributedSampler, if it has one.

    Args:
        loader: A data loader.
        seed: The seed.
        patches: Puts the old seed back when fit ends.
    """
    for sampler in (getattr(loader, "sampler", None), getattr(getattr(loader, "batch_sampler", None), "sampler", None)):
        if isinstance(sampler, DistributedSampler) and sampler.seed != seed:
            patches.put(sampler, "seed", seed)


def change_seed(strategy: Any, trainer: Any, peer_id: str, patches: Patches) -> None:
    """Gives the samplers of this peer's ranks a seed of their own, those that are there and those to come.

    If configure_optimizers reads trainer.estimated_stepping_batches, that loads the data before the peer has joined.

    Args:
        strategy: The HivemindStrategy.
        trainer: Its Trainer.
        peer_id: ID of the peer.
        patches: Puts the old seeds back when fit ends.
    """
    seed = sampler_seed(peer_id)
    patches.put(strategy, "_sampler_seed", seed)
    loaders, fetcher = trainer.fit_loop._combined_loader, trainer.fit_loop._data_fetcher
    if loaders is None or fetcher is None or trainer.fit_loop._should_reload_train_dl:
        return
    for loader in loaders.flattened:
        give_seed(loader, seed, patches)
    if fetcher.length is not None:  # workers have drawn the first samples by the old seed
        iter(fetcher)
