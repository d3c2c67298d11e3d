"""What a skipped step leaves behind: nothing, at the cost of a few operations however many buffers there are."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.step.ema import AveragedModel
from trainer.step.rollback import StepRollback

CPU = torch.device("cpu")


class Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Counts the operations that torch is asked for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the same
        self.count: int = 0

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def make_model(layers: int) -> nn.Module:
    return nn.Sequential(*(nn.BatchNorm1d(4) for _ in range(layers)))


def count_operations(layers: int, *, reads_host: bool, skipped: float) -> int:
    rollback = StepRollback(make_model(layers), CPU, reads_host=reads_host)
    with Counted() as counted:
        rollback.record()
        rollback.restore_buffers_if_skipped(torch.tensor(skipped))
    return int(counted.count)


@pytest.mark.parametrize("reads_host", [True, False])
@pytest.mark.parametrize("skipped", [0.0, 1.0])
def test_operations_of_a_step_do_not_grow_with_the_number_of_buffers(reads_host: bool, skipped: float) -> None:
    """159 buffers as in ResNet-50 take the operations of 3: at most seven for each of the two sizes of numbers."""
    few, many = (count_operations(layers, reads_host=reads_host, skipped=skipped) for layers in (1, 53))
    assert few == many <= 14


@pytest.mark.parametrize("reads_host", [True, False])
def test_skipped_step_restores_every_kind_of_buffer_to_the_bit(reads_host: bool) -> None:
    """NaN and infinity vanish if the step is skipped, and stay if it isn't; integers wrap around on the way."""
    kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
    kinds += [torch.complex64, torch.complex128]
    model = nn.Module()
    for number, kind in enumerate(kinds):
        model.register_buffer(f"b{number}", torch.tensor([0, 1, 2, 3]).to(kind))
    model.register_buffer("count", torch.tensor(-(2**63)))
    model.register_buffer("turned", torch.arange(6.0).reshape(2, 3).t())
    before = [buffer.clone() for buffer in model.buffers()]
    rollback = StepRollback(model, CPU, reads_host=reads_host)
    for skipped, is_restored in ((0.0, False), (1.0, True)):
        for buffer in model.buffers():
            is_exact = buffer.dtype in (torch.int64, torch.uint8, torch.bool)
            buffer.fill_(1 if is_exact else float("nan"))
        after = [buffer.clone() for buffer in model.buffers()]
        rollback.restore_buffers_if_skipped(torch.tensor(skipped))
        expected = before if is_restored else after
        for buffer, value in zip(model.buffers(), expected, strict=True):
            torch.testing.assert_close(buffer, value, rtol=0, atol=0, equal_nan=True)


def test_failed_attempt_leaves_buffers_and_random_numbers_as_before() -> None:
    """A retried step draws the same numbers again."""
    model = make_model(2)
    rollback = StepRollback(model, CPU)
    rollback.record()
    drawn = torch.rand(3)
    model(torch.randn(8, 4))
    rollback.restore()
    assert torch.equal(torch.rand(3), drawn)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(model.buffers(), make_model(2).buffers(), strict=True))


@pytest.mark.parametrize("reads_host", [True, False])
@pytest.mark.parametrize("skipped", [0.0, 1.0])
def test_buffer_that_the_model_assigns_anew_is_undone_as_well(reads_host: bool, skipped: float) -> None:
    """`self.count = self.count + 1` makes another tensor."""
    model: Any = nn.Module()
    model.register_buffer("count", torch.zeros(1))
    rollback = StepRollback(model, CPU, reads_host=reads_host)
    model.count = model.count + 1
    rollback.restore_buffers_if_skipped(torch.tensor(skipped))
    assert model.count.item() == 1 - skipped
    rollback.record()
    model.count = model.count + 5
    rollback.restore()
    assert model.count.item() == 1 - skipped


def test_average_gets_a_buffer_that_the_model_assigns_anew() -> None:
    model: Any = make_model(1)
    average: Any = AveragedModel(copy.deepcopy(model), model, decay=0.9)
    model[0].running_mean = model[0].running_mean + 3
    average.copy_buffers()
    assert average.model[0].running_mean.tolist() == [3.0] * 4
