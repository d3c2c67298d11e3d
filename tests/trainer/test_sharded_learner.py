"""The state of a sharded learner: each rank's rows, and what they are loaded into."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer import harness, join_shards
from tests.trainer.learners import FAST, FEATURES, make_learner_of, random_batches, seeded
from tests.trainer.ranks import OnRanks
from tests.trainer.shard_writers import cut
from tests.trainer.step_ranks import METHOD, Net
from trainer.base.errors import CheckpointMismatchError
from trainer.base.memory import MicroBatchFile
from trainer.base.recipe import Moment
from trainer.checkpoints.shards import chunk_rows
from trainer.checkpoints.tree import Slice
from trainer.group.distributed import ProcessGroup
from trainer.step.learner import Learner

SHARDED = ("compute.fully_shard=on", "ema_decay=0.5")


def make(group: ProcessGroup, *settings: str, said: list[str] | None = None) -> Learner:
    return make_learner_of([*SHARDED, *settings], model=seeded(Net), changes=METHOD, group=group, said=said)


def step(learner: Learner, number: int) -> None:
    """Make a step whose gradient is the same on all ranks."""
    batches = random_batches(batch_size=learner.gradient.share, seed=number)
    learner.step(next(batches), rate=FAST, moment=Moment(step=number))


def trained(group: ProcessGroup, *settings: str) -> Learner:
    learner = make(group, *settings)
    for number in range(2):
        step(learner, number)
    return learner


def plain(value: Any) -> Any:
    """Turn slices into dicts, which can be compared."""
    if isinstance(value, Slice):
        return {"rows": value.tensor, "begin": value.begin, "total": value.total}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def whole(learner: Learner, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All-gather a state dict of a sharded model."""
    assert learner.sharding is not None
    return {name: learner.sharding.all_gather(value) for name, value in weights.items()}


def test_state_is_this_ranks_rows(on_ranks: OnRanks) -> None:
    """Of weights, EMA and moments; what has no rows is whole. The best weights are the EMA's rows."""

    def act(group: ProcessGroup) -> None:
        learner = trained(group)
        state = learner.state()
        assert learner.average is not None
        for key, model in (("model", learner.model), ("average", learner.average.model)):
            expected = cut(whole(learner, model.state_dict()), group.rank, group.size)
            harness.assert_equal(plain(state[key]), plain(expected), key)
        harness.assert_equal(plain(learner.evaluated_weights()), plain(state["average"]), "best")
        moments = state["optimizer"]["state"]
        for number, parameter in enumerate(learner.parameters):
            rows = chunk_rows(len(parameter), group.rank, group.size)
            assert moments[number]["exp_avg"].tensor.shape == (len(rows), *parameter.shape[1:])
            assert moments[number]["exp_avg"].begin == rows.start
            assert moments[number]["exp_avg"].total == len(parameter)
            assert moments[number]["step"].item() == 2
        assert not any(value.requires_grad for value in join_shards.as_tensors(state["model"]).values())

    on_ranks(2, act)


@pytest.mark.parametrize("clip_norm", [0, 1])
def test_norm_of_the_gradient_is_that_of_the_whole_model(clip_norm: int, on_ranks: OnRanks) -> None:
    """Not of this rank's rows: all decide alike whether to skip a step."""
    batch = next(random_batches(batch_size=4))
    alone = make_learner_of(["batch_size=4"], model=seeded(Net), changes=METHOD)
    expected = alone.step(batch, rate=FAST, moment=Moment(step=0)).grad_norm.item()

    def act(group: ProcessGroup) -> float:
        learner = make(group, f"optimizer.clip_norm={clip_norm}")
        norm = learner.step(batch, rate=FAST, moment=Moment(step=0)).grad_norm
        assert type(norm) is torch.Tensor
        return norm.item()

    assert on_ranks(2, act) == pytest.approx([expected] * 2, rel=1e-5)


def test_state_is_loaded_to_the_bit(on_ranks: OnRanks) -> None:
    """Rows as they were saved, and whole tensors: the next step is the same."""

    def act(group: ProcessGroup) -> None:
        learner = trained(group)
        state = harness.copy_state(learner.state())
        gathered = group.all_gather(state)
        joined = join(gathered)
        step(learner, 2)
        for loaded in (state, joined):
            other = make(group)
            other.load(harness.copy_state(loaded))
            harness.assert_equal(plain(other.state()), plain(state), "loaded")
            step(other, 2)
            harness.assert_equal(plain(other.state()), plain(learner.state()), "the next step")

    on_ranks(2, act)


def join(parts: list[Any]) -> Any:
    """Join the rows of several ranks."""
    first = parts[0]
    if isinstance(first, Slice):
        return torch.cat([part.tensor for part in parts])
    if isinstance(first, dict):
        return {key: join([part[key] for part in parts]) for key in first}
    return first


def test_weights_of_one_process_are_sharded_and_new_moments_kept(on_ranks: OnRanks) -> None:
    """A warm start: no moments in the state, no EMA."""
    alone = make_learner_of(["ema_decay=0"], model=seeded(Net), changes=METHOD)
    step(alone, 5)
    weights = harness.copy_state(alone.state())["model"]

    def act(group: ProcessGroup) -> None:
        learner = make(group)
        learner.load({"model": weights, "optimizer": None})
        harness.assert_equal(whole(learner, learner.model.state_dict()), weights, "weights")
        assert not learner.optimizer.state
        step(learner, 0)

    on_ranks(2, act)


def test_rows_of_another_rank_are_refused(on_ranks: OnRanks) -> None:
    """One row too many: what, why and what to do."""

    def act(group: ProcessGroup) -> tuple[str, str, str]:
        learner = make(group)
        state = harness.copy_state(learner.state())
        head = state["model"]["head.weight"]
        longer = torch.zeros(len(head.tensor) + 1, 8)
        state["model"]["head.weight"] = Slice(tensor=longer, begin=head.begin, total=head.total)
        with pytest.raises(CheckpointMismatchError) as refused:
            learner.load(state)
        return refused.value.what, refused.value.why, refused.value.fix

    what, fix = (
        "the weights don't fit this model",
        "use the settings that they were trained with, or another checkpoint",
    )
    assert on_ranks(2, act) == [
        (what, f"rows of shape ({rows}, 8) for a tensor of shape (3, 8)", fix) for rows in (3, 2)
    ]


def test_learner_says_what_is_sharded(on_ranks: OnRanks) -> None:
    """And what of the settings it can't use with that."""

    def act(group: ProcessGroup) -> list[str]:
        said: list[str] = []
        learner = make(group, "compute.channels_last=on", "compute.sync_batchnorm=on", said=said)
        assert not learner.is_as_built
        without = dict(METHOD, blocks=())
        settings = ["compute.fully_shard=on", "compute.compile=on"]
        make_learner_of(settings, model=seeded(Net), changes=without, group=group, said=said)
        return said

    sharded = "weights, gradients and optimizer state are sharded over 2 processes (FSDP2)"
    assert (
        on_ranks(2, act)
        == [
            [
                "sync_batchnorm ignored: torch has it for GPUs only; each process normalises over its own share",
                sharded,
                "channels_last ignored: fully_shard doesn't support it",
                "compile ignored: with fully_shard it compiles blocks, and the recipe has none (Workload.blocks)",
                sharded,
                "the recipe has no blocks (Workload.blocks): each step all-gathers the whole model at once",
            ]
        ]
        * 2
    )


def test_smallest_micro_batch_of_all_ranks_is_used(on_ranks: OnRanks, tmp_path: Path) -> None:
    """The second ran out of memory in an earlier start; the first halves now."""

    def act(group: ProcessGroup) -> tuple[int, int, list[str]]:
        said: list[str] = []
        folder = tmp_path / str(group.rank)
        folder.mkdir()
        if group.rank == 1:
            MicroBatchFile(folder / "micro-batch.json", asked=0, per_device=4).write(2)
        learner = make_learner_of(group=group, folder=folder, said=said)
        started = learner.micro_batch
        if group.rank == 0:
            learner.micro_batch = 1
        return started, learner.smallest_micro_batch(), said

    said = ["micro-batch 2 instead of 4: an earlier start ran out of memory"]
    assert on_ranks(2, act) == [(2, 1, said)] * 2


def test_evaluation_computes_with_the_average_after_each_step(on_ranks: OnRanks) -> None:
    """Not with its weights of the first evaluation, which were all-gathered then."""

    def act(group: ProcessGroup) -> None:
        learner = make(group)
        values_BF = torch.ones(2, FEATURES)
        for number in range(2):
            step(learner, number)
            learner.prepare_evaluation()
            with torch.no_grad():
                found = learner.call_evaluated(lambda model, values: model(values), values_BF)
            reference = Net()
            reference.load_state_dict(whole(learner, learner.evaluated.state_dict()))
            torch.testing.assert_close(found, reference(values_BF).detach())

    on_ranks(2, act)
