"""Shards models that a function makes, on two ranks; a test starts it with torchrun.

python meta_init.py learners: the weights are those of built modules; prints what agreed.
python meta_init.py memory: prints how much each rank's memory has grown.
python meta_init.py runs FOLDER WEIGHTS: runs that start, resume and are given weights.
python meta_init.py refused NAME: a function that can't be used.
"""

import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.trainer.divided_run import Line, measure
from tests.trainer.harness import train_here
from trainer.base.config import Settings
from trainer.base.contract import read_contract
from trainer.base.hard_exit import hard_exit
from trainer.base.overrides import apply_overrides
from trainer.base.recipe import Moment, Recipe, Workload
from trainer.base.start_from import StartFrom
from trainer.group.distributed import ProcessGroup, process_group
from trainer.step.assembly import make_learner
from trainer.step.batch import plan_batch
from trainer.step.build import build_workload
from trainer.step.learner import Learner

# Shape legend: B batch, F features.
WIDTH = 5
"""Two ranks have 3 and 2 rows."""
MIB = 1 << 20


class Net(nn.Module):
    """Tied and frozen weights, batch norm, and buffers that aren't saved: a random one, and a complex one."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(1, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)) for _ in range(2))
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(requires_grad=False)
        self.loose, self.tied = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.tied.weight = self.loose.weight
        self.shift_F: torch.Tensor
        self.turn_F: torch.Tensor
        self.register_buffer("shift_F", torch.randn(WIDTH), persistent=False)
        self.register_buffer("turn_F", torch.polar(torch.ones(WIDTH), torch.rand(WIDTH)), persistent=False)
        self.also_shift_F = self.shift_F
        self.head = nn.Linear(WIDTH, 1)
        self.same_head = self.head

    def forward(self, x_B1: torch.Tensor) -> torch.Tensor:
        hidden_BF: torch.Tensor = self.into(x_B1) + self.also_shift_F
        for block in self.blocks:
            hidden_BF = hidden_BF + block(hidden_BF).tanh()
        y_B1: torch.Tensor = self.head(self.tied(self.loose(self.frozen(hidden_BF))) * self.turn_F.real)
        return y_B1


class Shuffled(Line):
    """The line's points in an order that `build` has drawn."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.order = torch.randperm(count)

    def sample(self, index: int, rng: Any) -> Any:
        return super().sample(int(self.order[index]), rng)


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.mse_loss(model(batch[0]), batch[1])


def build(_settings: Settings, *, is_made: bool, has_blocks: bool = True, **parts: Any) -> Workload:
    """Build the workload, of a module or of a function that makes it."""
    net = Net()
    model: dict[str, Any] = {"model": net, "blocks": list_blocks(net) if has_blocks else ()}
    if is_made:
        model = {"model": Net, "blocks": list_blocks if has_blocks else ()}
    data = {"train_data": Line(16), "validation_data": Line(4)}
    return Workload(**{**data, "loss": loss, "metrics": measure, **model, **parts})


def list_blocks(model: nn.Module) -> list[nn.Module]:
    assert isinstance(model, Net)
    return list(model.blocks)


def recipe_of(build: Callable[[Settings], Workload], *settings: str) -> Recipe[Settings]:
    base = Settings(epochs=2, batch_size=16, curves=False, onnx=False, log_every_steps=1)
    return Recipe(settings=apply_overrides(base, ("compute.fully_shard=on", *settings)), build=build)


def learner_of(recipe: Recipe[Settings], group: ProcessGroup) -> Learner:
    workload = build_workload(recipe, group)
    plan = plan_batch(batch_size=16, world_size=group.size, samples=16, epochs=2)
    nowhere = Path("nowhere")
    return make_learner(recipe.settings, workload, group, plan, restart_file=nowhere, say=lambda _: None)


CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "blocks": ({}, ()),
    "no blocks": ({"has_blocks": False}, ()),
    "EMA": ({}, ("ema_decay=0.5",)),
    "EMA, no blocks": ({"has_blocks": False}, ("ema_decay=0.5",)),
    "offloaded, EMA, sgd": ({}, ("ema_decay=0.5", "compute.cpu_offload=on", "optimizer.name=sgd")),
    "recomputed": ({}, ("compute.gradient_checkpointing=on",)),
}


def compare_learners() -> None:
    with process_group(read_contract(os.environ)) as group:
        for name, (parts, settings) in CASES.items():
            found = []
            for is_made in (True, False):
                learner = learner_of(recipe_of(partial(build, is_made=is_made, **parts), *settings), group)
                found.append([_all_values(learner), _train(learner, group)])
            made, built = found
            for (key, ours), theirs in zip(_flat(made).items(), _flat(built).values(), strict=True):
                assert torch.equal(ours, theirs), f"{name}: {key}"
            _compare_with_whole(made[0])
            _print(group, f"agrees: {name}")
        _check_build(group)
        _print(group, "agrees: meta tensors and random states")


def _train(learner: Learner, group: ProcessGroup) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(group.rank)
    for number in range(2):
        x_B1 = torch.randn(8, 1, generator=draw)
        learner.step((x_B1, 2 * x_B1), rate=0.01, moment=Moment(step=number))
    learner.prepare_evaluation()
    with torch.no_grad():
        output_B1 = learner.call_evaluated(lambda model: model(torch.ones(3, 1)))
    model = learner.model
    assert isinstance(model, Net)
    assert model.tied.weight is model.loose.weight
    assert not model.frozen.weight.requires_grad
    assert model.same_head.weight is model.head.weight
    return {**_all_values(learner), "output": output_B1}


def _all_values(learner: Learner) -> dict[str, torch.Tensor]:
    """Return every parameter and every buffer, of the average too, whole."""
    assert learner.sharding
    models = {"model": learner.model, **({"average": learner.average.model} if learner.average else {})}
    return {
        f"{kind} {name}": learner.sharding.all_gather(tensor.detach()).clone()
        for kind, model in models.items()
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    }


def _flat(found: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {f"{number} {key}": value for number, values in enumerate(found) for key, value in values.items()}


def _compare_with_whole(values: Mapping[str, torch.Tensor]) -> None:
    """Compare initial weights with those of one process."""
    whole = build_workload(recipe_of(partial(build, is_made=False))).model
    expected = dict((*whole.named_parameters(), *whole.named_buffers()))
    assert {name.split()[1] for name in values} == expected.keys()
    for name, value in values.items():
        assert torch.equal(value, expected[name.split()[1]]), name


def _check_build(group: ProcessGroup) -> None:
    shuffled = lambda settings: build(settings, is_made=True, train_data=Shuffled(16))  # noqa: E731
    workload = build_workload(recipe_of(shuffled), group)
    tensors = [*workload.model.parameters(), *workload.model.buffers()]
    assert [tensor.is_meta for tensor in tensors] == [not group.is_main] * len(tensors)
    assert isinstance(workload.train_data, Shuffled)
    drawn = [workload.train_data.order.tolist(), torch.get_rng_state().tolist()]
    assert group.all_gather(drawn) == [drawn] * group.size


def list_layers(model: nn.Module) -> list[nn.Module]:
    return list(model.children())


def measure_memory() -> None:
    """Make a model of 200 MiB in 16 tensors, and shard it."""

    def make() -> nn.Module:
        return nn.Sequential(*(nn.Linear(1810, 1810, bias=False) for _ in range(16)))

    def build_big(_settings: Settings) -> Workload:
        return Workload(model=make, train_data=Line(16), validation_data=Line(4), loss=loss, blocks=list_layers)

    with process_group(read_contract(os.environ)) as group:
        learner_of(recipe_of(partial(build, is_made=True)), group)  # what is imported and allocated once
        before = _peak_mib()
        learner_of(recipe_of(build_big), group)
        grown = group.all_gather(_peak_mib() - before)
        _print(group, f"grown: {grown}")


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _print(group: ProcessGroup, line: str) -> None:
    if group.is_main:
        print(line, flush=True)


# A rate of almost 0: the weights at the end are those at the start.
STILL = ("optimizer.learning_rate=1e-12", "schedule.name=constant", "epochs=1")
STEADY = ("schedule.name=constant", "ema_decay=0.5")


def run_all(folder: str, weights: str) -> int:
    """Make each run with a function and with a built module, in FOLDER/made and FOLDER/built."""
    # Only the main process has the file.
    init = StartFrom(init=weights if os.environ["RANK"] == "0" else "/nowhere/weights.safetensors")
    codes = []
    for kind in ("made", "built"):
        here, is_made = Path(folder) / kind, kind == "made"
        whole, thin = (
            partial(build, is_made=is_made, trainable_only=trainable_only) for trainable_only in (False, True)
        )
        # What was made by a function is cut after an epoch.
        codes += [train_here(recipe_of(whole, *STEADY, "epochs=1"), here / "whole")] if is_made else []
        codes.append(train_here(recipe_of(whole, *STEADY), here / "whole"))
        codes += [train_here(recipe_of(thin, *STEADY, "epochs=1"), here / "thin")] if is_made else []
        codes.append(train_here(recipe_of(thin, *STEADY), here / "thin"))
        codes.append(train_here(recipe_of(whole, *STILL, "ema_decay=0.5"), here / "init", start_from=init))
    return max(codes)


def reads_a_value() -> nn.Module:
    model = Net()
    print(f"{model.head.bias.item():.2f}")
    return model


def has_a_plain_tensor() -> nn.Module:
    model = Net()
    setattr(model.blocks[0], "scales", [torch.ones(1)])  # noqa: B010 - torch's type for attributes excludes lists
    return model


def has_a_tensor_elsewhere() -> nn.Module:
    model = Net()
    setattr(model.blocks[0], "rates_F", torch.rand(WIDTH, device="cpu"))  # noqa: B010 - it would differ by rank
    return model


def keeps_a_list() -> nn.Module:
    model = Net()
    setattr(model, "all_weights", [model.head.weight])  # noqa: B010
    return model


def differs() -> nn.Module:
    return nn.Linear(1, 1 + int(os.environ["RANK"]))


def is_no_module() -> Any:
    return [Net()]


REFUSED = {
    function.__name__: function
    for function in (reads_a_value, has_a_plain_tensor, has_a_tensor_elsewhere, keeps_a_list, differs, is_no_module)
}


def run_refused(folder: str, name: str) -> int:
    def build_refused(_settings: Settings) -> Workload:
        return Workload(model=REFUSED[name], train_data=Line(16), validation_data=Line(4), loss=loss)

    return train_here(recipe_of(build_refused), Path(folder))


def main(what: str, *arguments: str) -> int:
    if what == "runs":
        return run_all(*arguments)
    if what == "refused":
        return run_refused(*arguments)
    (compare_learners if what == "learners" else measure_memory)()
    return 0


if __name__ == "__main__":
    hard_exit(main(*sys.argv[1:]))
