"""The strategy in Lightning's eyes: one process on one device, rank zero of a world of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List

import torch

from hivemind_c._lightning import namespaces

# for type checkers both base classes at once, so that the Trainer of either Lightning accepts a strategy
if TYPE_CHECKING:
    import lightning.pytorch.strategies
    import pytorch_lightning.strategies

    class Base(  # type: ignore[misc]
        lightning.pytorch.strategies.SingleDeviceStrategy, pytorch_lightning.strategies.SingleDeviceStrategy
    ):
        pass

else:
    Base = object


def from_trainer(name: str) -> Any:
    """Returns a property that a Trainer sets, without the loss of a value that the program gave.

    Lightning keeps the value in `_NAME`, where a second Trainer would take it for one that the program gave. Here
    `_NAME` keeps the value of the program, and that of the Trainer is kept beside it.

    Args:
        name: Name of the property.
    """

    def get(self: "OneDevice") -> Any:
        given = self.__dict__[f"_{name}"]
        self.__dict__[f"_{name}"] = self._of_trainer.get(name, given)
        try:
            value = getattr(super(OneDevice, self), name)
        finally:
            self.__dict__[f"_{name}"] = given
        if value is not None:
            self._of_trainer[name] = value
        return value

    def put(self: "OneDevice", value: Any) -> None:
        if name == "accelerator":  # the first that a Trainer sets
            self._of_trainer.clear()
            namespaces.settle(self, self._base, value)
        if value is not None:
            self._of_trainer[name] = value

    return property(get, put, doc=f"The {name} of the Trainer, or the one that the program gave.")


class OneDevice(namespaces.EitherLightning, Base):
    """The part of HivemindStrategy that makes it one process on one device for Lightning, with rank zero of one."""

    _base = "strategies.SingleDeviceStrategy"
    accelerator = from_trainer("accelerator")
    precision_plugin = from_trainer("precision_plugin")
    checkpoint_io = from_trainer("checkpoint_io")

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = namespaces.EitherLightning.__new__(cls)
        made._of_trainer, made.devices = {}, []
        return made

    _of_trainer: Dict[str, Any]
    devices: List[Any]  #: the Trainer's

    @property
    def parallel_devices(self) -> Any:
        """None: the program gives no devices to a strategy, and each Trainer sets its own."""
        return None

    @parallel_devices.setter
    def parallel_devices(self, devices: Any) -> None:
        self.devices = list(devices or ())

    @property
    def root_device(self) -> torch.device:
        """The device of this peer."""
        device = self.devices[0] if self.devices else "cpu"
        return device if isinstance(device, torch.device) else torch.device(device)

    # each peer has its own bars, logs and metrics; checkpoints: checkpoint_files.py
    global_rank = local_rank = node_rank = 0
    world_size = 1
