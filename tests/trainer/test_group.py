"""The process group: what each collective returns, and what the others learn of an error."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.trainer.ranks import OnRanks
from tests.trainer.refusals import text_of
from trainer.base.config import ComputeSettings
from trainer.base.contract import read_contract
from trainer.base.errors import TrainerError
from trainer.group.distributed import ALONE, ProcessGroup, choose_device, process_group
from trainer.group.through import Through

CPU = torch.device("cpu")


def failing(rank: int) -> TrainerError:
    return TrainerError(f"rank {rank} fails", why="it was asked to", fix="don't ask")


def collect(group: ProcessGroup) -> dict[str, object]:
    """The results of all collectives, for rank-dependent values."""
    mine = torch.tensor([1.0, 10.0]) * (group.rank + 1)
    summed = group.all_reduce_sum(mine)
    return {
        "mine": mine.tolist(),
        "sum": summed.tolist(),
        "sums": group.all_reduce_sums([group.rank, 0.5, 2.0**40 + 1]),
        "max": group.all_reduce_max([group.rank, -group.rank, 2**40 + group.rank]),
        "gathered": group.all_gather({"rank": group.rank}),
        "from main": group.broadcast_from_main(lambda: f"of {group.rank}"),
        "from last": group.broadcast_from(group.size - 1, lambda: f"of {group.rank}"),
        "own": group.call_on_every_rank(lambda: group.rank),
    }


def test_collectives_of_three(on_ranks: OnRanks) -> None:
    """Sums, maxima, lists by rank; the values that were given stay as they were."""
    for rank, found in enumerate(on_ranks(3, collect)):
        assert found == {
            "mine": [1.0 + rank, 10.0 + 10 * rank],
            "sum": [6.0, 60.0],
            "sums": [3.0, 1.5, 3 * 2.0**40 + 3],
            "max": [2, 0, 2**40 + 2],
            "gathered": [{"rank": 0}, {"rank": 1}, {"rank": 2}],
            "from main": "of 0",
            "from last": "of 2",
            "own": rank,
        }


def test_collectives_of_one_return_its_own_values() -> None:
    """Torch has no group then."""
    assert not dist.is_initialized()
    assert collect(ALONE) == {
        "mine": [1.0, 10.0],
        "sum": [1.0, 10.0],
        "sums": [0, 0.5, 2.0**40 + 1],
        "max": [0, 0, 2**40],
        "gathered": [{"rank": 0}],
        "from main": "of 0",
        "from last": "of 0",
        "own": 0,
    }
    assert (ALONE.rank, ALONE.size, ALONE.device) == (0, 1, CPU)


def test_error_of_one_rank_is_raised_on_all(on_ranks: OnRanks) -> None:
    """The main process's, and of several the first one's; only the rank that is asked makes the value."""

    def act(group: ProcessGroup) -> list[str]:
        made: list[int] = []

        def fail() -> None:
            made.append(group.rank)
            if group.rank:
                raise failing(group.rank)

        errors = []
        for rank in (1, 2):
            with pytest.raises(TrainerError) as caught:
                group.broadcast_from(rank, fail)
            errors.append(caught.value.what)
        with pytest.raises(TrainerError) as caught:
            group.call_on_every_rank(fail)
        assert made == [group.rank] * (2 if group.rank else 1)
        assert group.broadcast_from_main(fail) is None
        return [*errors, caught.value.what]

    assert on_ranks(3, act) == [["rank 1 fails", "rank 2 fails", "rank 1 fails"]] * 3


def test_other_errors_are_raised_where_they_happen() -> None:
    """A bug isn't sent to the others."""

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ALONE.broadcast_from_main(fail)
    with pytest.raises(TrainerError, match="rank 3"):
        ALONE.call_on_every_rank(lambda: (_ for _ in ()).throw(failing(3)))


def test_buffers_are_the_main_processs(on_ranks: OnRanks) -> None:
    """Parameters stay each rank's own."""

    def act(group: ProcessGroup) -> tuple[float, float]:
        model = nn.BatchNorm1d(2)
        for tensor in (*model.parameters(), *model.buffers()):
            nn.init.constant_(tensor.data, group.rank + 1)
        group.broadcast_buffers(model)
        assert model.running_mean is not None
        return model.weight[0].item(), model.running_mean[1].item()

    assert on_ranks(2, act) == [(1.0, 1.0), (2.0, 1.0)]


@pytest.mark.parametrize("static_graph", [True, False])
def test_wrapped_model_averages_gradients_and_keeps_its_own_buffers(static_graph: bool, on_ranks: OnRanks) -> None:
    """The settings reach DDP; gradients are views of its buckets, and the forward pass sends no buffers."""
    settings = ComputeSettings(static_graph=static_graph, find_unused_parameters=not static_graph)

    def act(group: ProcessGroup) -> float:
        model = nn.Linear(1, 1, bias=False)
        model.register_buffer("seen", torch.zeros(1))
        wrapped = group.wrap(Through(model), settings)
        seen = model.get_buffer("seen")
        seen += group.rank
        assert isinstance(wrapped, DistributedDataParallel)
        assert wrapped.static_graph is static_graph
        assert wrapped.find_unused_parameters is not static_graph
        assert wrapped.gradient_as_bucket_view
        assert wrapped.device_ids is None
        loss = wrapped(lambda net: net(torch.full((1, 1), float(group.rank))).sum())
        loss.backward()
        assert seen.item() == group.rank
        assert model.weight.grad is not None
        return model.weight.grad.item()

    assert on_ranks(2, act) == [0.5, 0.5]


def test_one_process_is_not_wrapped() -> None:
    through = Through(nn.Linear(1, 1))
    assert ALONE.wrap(through, ComputeSettings()) is through


def test_groups_know_their_place_and_are_kept(on_ranks: OnRanks) -> None:
    """The first is the main process. A later run in the same process uses the group that is there."""

    def act(group: ProcessGroup) -> tuple[int, int, bool, bool]:
        assert group.device == CPU
        assert group.store is not None
        group.store.set(f"from {group.rank}", "here")
        group.store.wait([f"from {1 - group.rank}"])
        before = dist.group.WORLD
        environ = {"RANK": str(group.rank), "WORLD_SIZE": "2"}
        with process_group(read_contract(environ)) as again:
            assert again.all_reduce_max([again.rank]) == [1]
        assert dist.group.WORLD is before
        return group.rank, group.size, group.is_main, group.is_open

    assert on_ranks(2, act) == [(0, 2, True, True), (1, 2, False, True)]


def test_group_of_one_is_open_only_if_the_caller_opened_it() -> None:
    """It has the caller's store then."""
    with process_group(read_contract({})) as alone:
        assert (alone.rank, alone.size, alone.is_open, alone.is_main) == (0, 1, False, True)
    store = dist.HashStore()  # type: ignore[attr-defined]  # public, but not in its __all__
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        with process_group(read_contract({})) as opened:
            assert (opened.rank, opened.size, opened.is_open, opened.device) == (0, 1, True, CPU)
            assert opened.store is not None
            opened.store.set("key", "value")
            assert opened.store.get("key") == b"value"
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()


def test_each_process_of_a_machine_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third of two GPUs is refused; without any, all compute on the CPU."""
    used: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", used.append)
    contracts = [
        read_contract({"RANK": str(8 + rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "16"}) for rank in range(3)
    ]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device(contracts[2]) == CPU
    assert not used
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    devices = [choose_device(contract) for contract in contracts[:2]]
    assert devices == used == [torch.device("cuda", 0), torch.device("cuda", 1)]
    assert text_of(lambda: choose_device(contracts[2])) == (
        "process 3 on this machine has no GPU\n"
        "  why: 2 GPUs are visible, and every process needs its own\n"
        "  fix: start torchrun with --nproc-per-node 2, or hide the GPUs to train on the CPU"
    )
