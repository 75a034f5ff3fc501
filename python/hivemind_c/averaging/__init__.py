"""Averaging: tensors of many peers become their mean, in place."""

from hivemind_c.averaging.averager import DecentralizedAverager
from hivemind_c.averaging.control import AveragingStage, StepControl

__all__ = ["AveragingStage", "DecentralizedAverager", "StepControl"]


def __getattr__(name: str) -> object:
    from hivemind_c._lazy import submodule

    return submodule(__name__, name)
