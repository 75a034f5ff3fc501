"""Training with a swarm: how far it is."""

from hivemind_c.optim.progress_tracker import GlobalTrainingProgress, LocalTrainingProgress, ProgressTracker

__all__ = [
    "GlobalTrainingProgress",
    "LocalTrainingProgress",
    "ProgressTracker",
]
