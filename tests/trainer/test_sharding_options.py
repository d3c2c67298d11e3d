"""What FSDP2 is asked for, as older versions of torch understand it."""

from typing import Any

import pytest
from torch import nn
from torch.distributed.fsdp import fully_shard

from trainer.base.config import ComputeSettings
from trainer.group.distributed import ProcessGroup
from trainer.step import sharding
from trainer.step.sharding import Sharding


def test_torch_that_wants_a_bool_or_a_number_shards_both_models(
    group: ProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch 2.6 and 2.7 refuse `reshard_after_forward=None`; only the average needs a value of its own."""
    newer, asked = fully_shard, []

    def older(module: nn.Module, *, reshard_after_forward: bool | int = True, **options: Any) -> Any:
        if not isinstance(reshard_after_forward, (bool, int)):
            raise TypeError(f"reshard_after_forward should be a bool or an int, not {reshard_after_forward}")
        asked.append(reshard_after_forward)
        return newer(module, reshard_after_forward=reshard_after_forward, **options)

    monkeypatch.setattr(sharding, "fully_shard", older)
    for is_trained in (True, False):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        Sharding(group).shard_model(model, [model[0]], settings=ComputeSettings(), is_trained=is_trained)
        assert all(hasattr(parameter, "device_mesh") for parameter in model.parameters())
    assert asked == [True] * 4
