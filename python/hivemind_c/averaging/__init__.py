"""Averaging: tensors of many peers become their mean, in place."""

from hivemind_c.averaging.averager import DecentralizedAverager
from hivemind_c.averaging.control import AveragingStage, StepControl

__all__ = ["AveragingStage", "DecentralizedAverager", "StepControl"]
