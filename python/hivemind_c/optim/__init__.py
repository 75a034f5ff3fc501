"""Training with a swarm: the optimizer, what it is made of, and how far the swarm is."""

from hivemind_c import _needs

_needs.check("torch", "numpy")  # before a module imports them

TYPE_CHECKING = False  # as at the top: who wants the tracker alone needs no torch
if TYPE_CHECKING:
    from hivemind_c.optim.company import AloneError
    from hivemind_c.optim.diloco_optimizer import DiLoCoOptimizer
    from hivemind_c.optim.epoch_record import EpochRecord
    from hivemind_c.optim.grad_averager import GradientAverager, GradientAveragerFactory
    from hivemind_c.optim.grad_scaler import GradScaler
    from hivemind_c.optim.optimizer import CollaborativeOptimizer, Optimizer
    from hivemind_c.optim.power_sgd_averager import PowerSGDGradientAverager
    from hivemind_c.optim.progress_tracker import GlobalTrainingProgress, LocalTrainingProgress, ProgressTracker
    from hivemind_c.optim.setup import ConfigMismatchError
    from hivemind_c.optim.state_averager import TrainingStateAverager
    from hivemind_c.optim.training_averager import TrainingAverager

_LATER = {
    "AloneError": "company",
    "CollaborativeOptimizer": "optimizer",
    "ConfigMismatchError": "setup",
    "DiLoCoOptimizer": "diloco_optimizer",
    "EpochRecord": "epoch_record",
    "GlobalTrainingProgress": "progress_tracker",
    "GradScaler": "grad_scaler",
    "GradientAverager": "grad_averager",
    "GradientAveragerFactory": "grad_averager",
    "LocalTrainingProgress": "progress_tracker",
    "Optimizer": "optimizer",
    "PowerSGDGradientAverager": "power_sgd_averager",
    "ProgressTracker": "progress_tracker",
    "TrainingAverager": "training_averager",
    "TrainingStateAverager": "state_averager",
}

_TORCHLESS = ("company", "epoch_record", "progress_tracker", "setup")
_WITHOUT_TORCH = {name for name, module in _LATER.items() if module in _TORCHLESS}

__all__ = [
    "AloneError",
    "CollaborativeOptimizer",
    "ConfigMismatchError",
    "DiLoCoOptimizer",
    "EpochRecord",
    "GlobalTrainingProgress",
    "GradScaler",
    "GradientAverager",
    "GradientAveragerFactory",
    "LocalTrainingProgress",
    "Optimizer",
    "PowerSGDGradientAverager",
    "ProgressTracker",
    "TrainingAverager",
    "TrainingStateAverager",
]


def __getattr__(name: str) -> object:
    if name not in _LATER:
        from hivemind_c._lazy import submodule

        return submodule(__name__, name)
    from importlib import import_module

    if name not in _WITHOUT_TORCH:
        _needs.demand(f"hivemind_c.{name}", "torch", "numpy")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return value
