"""A step that runs out of memory: gradient checkpointing, and smaller micro-batches."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.trainer import harness
from tests.trainer.learners import (
    FAST,
    FEATURES,
    PlainNet,
    SmallNet,
    make_learner_of,
    random_batches,
    seeded,
    train_steps,
)
from trainer.base.errors import DeviceMemoryError
from trainer.base.recipe import Moment

# Shape legend: B batch, F features.


class Scarce(nn.Module):
    """A device with memory for a few samples at once; its error has the allocator's own words."""

    def __init__(self, net: nn.Module, *, room: int) -> None:
        super().__init__()
        self.net = net
        self.room = room

    def forward(self, values_BF: torch.Tensor) -> torch.Tensor:
        logits_BK: torch.Tensor = self.net(values_BF)
        if len(values_BF) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return logits_BK


@pytest.mark.parametrize("net", [PlainNet, SmallNet])
def test_gradient_checkpointing_changes_nothing(net: type[nn.Module]) -> None:
    """Weights, dropout's draws and running statistics are the same to the bit; batch norm counts each batch once."""
    plain = train_steps(make_learner_of(model=seeded(net)))
    again = train_steps(make_learner_of(["compute.gradient_checkpointing=on"], model=seeded(net)))
    harness.assert_equal(again, plain, "weights")


def test_recomputed_block_stores_no_activations() -> None:
    """The block runs twice a step, and once if no gradient is needed."""
    net = PlainNet()
    calls: list[bool] = []
    net.block[0].register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    learner = make_learner_of(["compute.gradient_checkpointing=on"], model=net)
    train_steps(learner, steps=1)
    assert len(calls) == 2
    learner.model.eval()
    learner.model(torch.zeros(2, FEATURES))
    assert len(calls) == 3


def test_recipe_without_blocks_gets_a_message_that_nothing_is_recomputed() -> None:
    """Gradient checkpointing is ignored with a message."""
    said: list[str] = []
    make_learner_of(["compute.gradient_checkpointing=on"], model=nn.Linear(FEATURES, 3), said=said)
    assert said == ["gradient_checkpointing ignored: the recipe has no blocks (Workload.blocks)"]


def test_out_of_memory_halves_the_micro_batch_and_repeats_the_step() -> None:
    """Room for 2 of 8 samples: two halvings, with a message; then the run equals one with micro_batch=2, to the bit.

    Running statistics and dropout's draws of the failed attempts are undone.
    """
    said: list[str] = []
    learner = make_learner_of(model=Scarce(seeded(SmallNet), room=2), said=said)
    found = train_steps(learner)
    expected = train_steps(make_learner_of(["micro_batch=2"], model=Scarce(seeded(SmallNet), room=2)))
    harness.assert_equal(found, expected, "weights")
    assert learner.micro_batch == 2
    assert said == [
        "out of memory: micro-batch 8 -> 4, accumulation x 2, same global batch",
        "out of memory: micro-batch 4 -> 2, accumulation x 2, same global batch",
    ]


def test_out_of_memory_with_one_sample_says_what_to_do() -> None:
    """The micro-batch can't be halved: one clear error."""
    learner = make_learner_of(model=Scarce(PlainNet(), room=0))
    with pytest.raises(DeviceMemoryError, match="micro-batch of 1") as caught:
        learner.step(next(random_batches()), rate=FAST, moment=Moment(step=0))
    assert "gradient_checkpointing" in caught.value.fix


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    """A bug in a recipe is raised unchanged, at once."""
    learner = make_learner_of()
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        learner.step(
            (torch.zeros(8, FEATURES + 1), torch.zeros(8, dtype=torch.int64)), rate=FAST, moment=Moment(step=0)
        )


def test_micro_batch_for_the_next_start_is_used_only_with_the_same_setting(tmp_path: Path) -> None:
    """A process that couldn't continue wrote 2; if the user sets another micro_batch, that doesn't count."""
    learner = make_learner_of(folder=tmp_path)
    learner.recovery.micro_batch_file.write(2)
    said: list[str] = []
    assert make_learner_of(folder=tmp_path, said=said).micro_batch == 2
    assert said == ["micro-batch 2 instead of 8: an earlier start ran out of memory"]
    assert make_learner_of(["micro_batch=4"], folder=tmp_path).micro_batch == 4
    (tmp_path / "micro-batch.json").write_text("{")
    assert make_learner_of(folder=tmp_path).micro_batch == 8
