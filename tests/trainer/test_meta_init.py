"""Models that a function makes, so that only the main process has all of their weights before they are sharded."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tests.trainer import harness, meta_init
from tests.trainer.divided_run import Line
from tests.trainer.meta_init import Net, learner_of, recipe_of
from trainer.base.errors import BadRequestError
from trainer.base.recipe import Moment, Workload
from trainer.checkpoints.loading import load
from trainer.group.distributed import ALONE, ProcessGroup
from trainer.step.build import build_workload

# Shape legend: B batch, T steps of a sequence, F features.
SCRIPT = str(Path(meta_init.__file__))


@pytest.mark.slow
def test_made_model_is_to_the_bit_the_built_one_on_two_ranks() -> None:
    """Tied and frozen weights, buffers that aren't saved, batch norm; with and without blocks and an average.

    Before it is sharded, all of the second rank's tensors are on the meta device.
    """
    ended = harness.run_script(SCRIPT, "learners", processes=2)
    assert ended.code == 0, ended.err
    assert [line for line in ended.out.splitlines() if line.startswith("agrees")] == [
        f"agrees: {name}" for name in (*meta_init.CASES, "meta tensors and random states")
    ]


@pytest.mark.slow
def test_second_rank_never_has_the_whole_model_in_memory() -> None:
    """Of 200 MiB its rows, and two of 16 tensors on their way; the main process has all."""
    ended = harness.run_script(SCRIPT, "memory", processes=2)
    assert ended.code == 0, ended.err
    (line,) = re.findall(r"grown: \[(\d+), (\d+)\]", ended.out)
    main, second = map(int, line)
    assert main > 190
    assert second < 150


@pytest.mark.slow
def test_runs_of_a_made_model_start_save_and_resume_as_those_of_a_built_one(tmp_path: Path) -> None:
    """The made one's were cut after an epoch. With all weights, with the trained ones only, and from a file."""
    torch.manual_seed(5)
    weights = {name: value.clone() for name, value in Net().state_dict().items()}
    save_file(weights, tmp_path / "weights.safetensors")
    ended = harness.run_script(SCRIPT, "runs", str(tmp_path), str(tmp_path / "weights.safetensors"), processes=2)
    assert ended.code == 0, ended.err
    assert ended.out.count("resumed from step 1") == 2
    for name in ("whole", "thin", "init"):
        harness.assert_same_run(tmp_path / "made" / name, tmp_path / "built" / name)
    state = load(harness.newest_checkpoint(tmp_path / "made" / "init"), ALONE)
    for part in ("model", "average"):
        for name, value in weights.items():
            if ".1." not in name or name.endswith(("weight", "bias")):  # batch norm's statistics have moved on
                assert torch.allclose(state[part][name], value, atol=1e-6), f"{part} {name}"
    exported = load_file(tmp_path / "made" / "thin" / "model.safetensors")
    assert "frozen.weight" not in exported
    assert "head.weight" in exported


REFUSALS = {
    "reads_a_value": ("does not work on torch's meta device", "--init"),
    "has_a_plain_tensor": ("blocks.0.scales is neither a parameter nor a buffer", "register_buffer('scales'"),
    "has_a_tensor_elsewhere": ("blocks.0.rates_F is neither a parameter nor a buffer",),
    "keeps_a_list": ("model's all_weights holds parameters or buffers", "nn.ParameterList"),
    "differs": ("made different models", "process 1 has weight (2, 1)", "process 0 has weight (1, 1)"),
    "is_no_module": ("returns list instead of an nn.Module",),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSALS)
def test_function_that_cant_be_used_is_refused_with_what_to_change(name: str, tmp_path: Path) -> None:
    """By every process, with nothing written."""
    ended = harness.run_script(SCRIPT, "refused", str(tmp_path / "output"), name, processes=2)
    assert ended.code == 1  # torchrun's
    assert ended.err.count("error: ") >= 2
    for text in REFUSALS[name]:
        assert ended.err.count(text) == 2, ended.err
    assert not (tmp_path / "output").exists()


def workload_of(model: Any, **parts: Any) -> Callable[[Any], Workload]:
    return lambda _: Workload(
        model=model,
        train_data=Line(16),
        validation_data=Line(4),
        loss=meta_init.loss,
        **parts,
    )


def test_function_s_model_is_the_same_module_without_sharding() -> None:
    """Its initial weights depend on the seed alone, not on what `build` draws before it is called."""

    def build_made(settings: Any) -> Workload:
        torch.randn(7)
        return workload_of(Net, blocks=lambda net: net.blocks)(settings)

    def build_built(settings: Any) -> Workload:
        return workload_of(Net())(settings)

    built, made = build_workload(recipe_of(build_built)), build_workload(recipe_of(build_made))
    assert isinstance(made.model, Net)
    assert made.blocks == tuple(made.model.blocks)
    harness.assert_equal(dict(made.model.state_dict()), dict(built.model.state_dict()), "weights")


def test_module_list_is_no_function_of_blocks() -> None:
    model = Net()
    assert build_workload(recipe_of(workload_of(model, blocks=model.blocks))).blocks == tuple(model.blocks)


class Recurrent(nn.Module):
    """An LSTM, which notes its weights elsewhere too, and a head whose weight a block shares."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Linear(3, 3)
        self.lstm = nn.LSTM(1, 3, batch_first=True)
        self.head = nn.Linear(3, 3)
        self.head.weight = self.block.weight

    def forward(self, x_B1: torch.Tensor) -> torch.Tensor:
        hidden_BTF, _ = self.lstm(x_B1[:, None])
        y_B1: torch.Tensor = self.head(self.block(hidden_BTF[:, 0])).mean(1, keepdim=True)
        return y_B1


def test_recurrent_layers_and_a_weight_shared_over_a_block_s_edge_are_trained_as_without_sharding(
    group: ProcessGroup,
) -> None:
    """A tied weight stays one parameter, wherever its other user is."""
    x_B1 = torch.linspace(-1, 1, 16)[:, None]
    found = []
    for chosen in (group, ALONE):
        learner = learner_of(recipe_of(workload_of(Recurrent, blocks=lambda net: [net.block])), chosen)
        for number in range(3):
            learner.step((x_B1, 2 * x_B1), rate=0.01, moment=Moment(step=number))
        gather: Callable[[torch.Tensor], torch.Tensor] = (
            learner.sharding.all_gather if learner.sharding else torch.clone
        )
        found.append({name: gather(value.detach()) for name, value in learner.model.named_parameters()})
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], msg=name)


def test_no_module_is_refused_by_one_process_too() -> None:
    with pytest.raises(BadRequestError, match="has no model"):
        build_workload(recipe_of(workload_of(meta_init.is_no_module)))
