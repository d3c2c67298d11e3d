"""What FSDP2 is asked for, as older versions of torch understand it."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

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


def record_options(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each module is sharded with, blocks first."""
    asked: list[dict[str, Any]] = []

    def recorded(module: nn.Module, **options: Any) -> Any:
        asked.append(options)
        return fully_shard(module, **options)

    monkeypatch.setattr(sharding, "fully_shard", recorded)
    return asked


@pytest.mark.parametrize("amp", ["bf16", "off", "fp16"])
@pytest.mark.parametrize("has_norm", [True, False])
def test_weights_are_gathered_in_bf16_but_those_beside_batch_norm(
    amp: str, has_norm: bool, group: ProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients are averaged in float32; only blocks cast their inputs. A block without weights is none."""
    asked = record_options(monkeypatch)
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.ReLU(), nn.LayerNorm(2))
    outer = nn.Sequential(model, nn.BatchNorm1d(2) if has_norm else nn.Linear(2, 1))
    Sharding(group).shard_model(outer, list(model)[:3], settings=ComputeSettings(amp=amp))  # type: ignore[arg-type]
    half, whole = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}, MixedPrecisionPolicy()
    block = MixedPrecisionPolicy(**half, cast_forward_inputs=True) if amp == "bf16" else whole
    rest = MixedPrecisionPolicy(**half, cast_forward_inputs=False) if amp == "bf16" and not has_norm else whole
    assert [options["mp_policy"] for options in asked] == [block, whole, rest]
    assert all(set(options) == {"mesh", "mp_policy"} for options in asked)


@pytest.mark.parametrize("cpu_offload", [True, False])
def test_weights_wait_in_main_memory_if_that_is_set(
    cpu_offload: bool, group: ProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pinned only beside a GPU."""
    asked = record_options(monkeypatch)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    Sharding(group).shard_model(model, [model[0]], settings=ComputeSettings(cpu_offload=cpu_offload))
    expected = CPUOffloadPolicy(pin_memory=False) if cpu_offload else None
    assert [options.get("offload_policy") for options in asked] == [expected] * 2
