"""What a user reads when the settings of a step or its model are refused, or memory runs out: the whole text."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer.learners import FAST, FEATURES, PlainNet, SmallNet, make_learner_of, random_batches
from tests.trainer.refusals import text_of
from trainer.base.config import ComputeSettings, OptimizerSettings, Settings
from trainer.base.memory import MicroBatchFile
from trainer.base.recipe import Moment
from trainer.checkpoints.weights import load_weights
from trainer.group.distributed import ALONE, ProcessGroup
from trainer.step.assembly import check_settings
from trainer.step.batch import find_batch_concern, plan_batch
from trainer.step.compiling import Compiler
from trainer.step.precision import explain_nondeterminism
from trainer.step.recovery import Recovery
from trainer.step.schedule import find_schedule_concern, plan_rates

PAIR = ProcessGroup(rank=0, size=2, device=torch.device("cpu"))
SECOND = ProcessGroup(rank=1, size=2, device=torch.device("cpu"))


def check(model: nn.Module | None = None, group: ProcessGroup = ALONE, **groups: Any) -> None:
    check_settings(Settings(**groups), model or PlainNet(), group)


def plan(batch_size: int, world_size: int, samples: int, micro_batch: int = 0) -> None:
    plan_batch(batch_size=batch_size, world_size=world_size, samples=samples, epochs=1, micro_batch=micro_batch)


def with_groups(groups: object, *settings: str) -> None:
    make_learner_of(settings, model=PlainNet(), changes={"parameter_groups": groups})


def model_with_a_scalar() -> nn.Module:
    model = nn.Module()
    model.scale, model.shift = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(2.0))
    return model


def step(learner: Any) -> None:
    learner.step(next(random_batches()), rate=FAST, moment=Moment(step=0))


class Full(PlainNet):
    def forward(self, _values_BF: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore")


def recovery(folder: Path, group: ProcessGroup = PAIR, **parts: Any) -> Recovery:
    file = MicroBatchFile(folder / "micro-batch.json", asked=0, per_device=8)
    parts = {"micro_batch": 8, "say": lambda _: None, "compiler": Compiler(print), **parts}
    return Recovery(group=group, micro_batch_file=file, **parts)


OF_STEPS: dict[str, tuple[Callable[[], object], str]] = {
    "batch": (
        lambda: plan(100, 8, 1000),
        "batch_size 100 does not divide over 8 processes\n"
        "  why: it is the global batch, and every process gets the same share\n"
        "  fix: use --set batch_size=96 or --set batch_size=104",
    ),
    "large batch": (
        lambda: plan(1440, 2, 1437),
        "batch_size 1440 would train zero steps\n"
        "  why: there are 1437 training samples, and an epoch has only whole batches\n"
        "  fix: use --set batch_size=1436",
    ),
    "many processes": (
        lambda: plan(8, 8, 5),
        "batch_size 8 would train zero steps\n"
        "  why: there are 5 training samples, and an epoch has only whole batches\n"
        "  fix: use at most 5 processes: there are only 5 training samples",
    ),
    "micro-batch": (
        lambda: plan(64, 2, 1000, 5),
        "micro_batch 5 does not divide a process's share of 32\n"
        "  why: every micro-batch of a step has the same size, so that their mean is the batch's\n"
        "  fix: use --set micro_batch=4 or --set micro_batch=8",
    ),
    "deterministic search": (
        lambda: check(compute=ComputeSettings(deterministic=True, benchmark=True)),
        "compute.deterministic and compute.benchmark exclude each other\n"
        "  why: the fastest algorithm is another one at each start, and its rounding is its own\n"
        "  fix: leave one of them off",
    ),
    "scalars": (
        lambda: check(model_with_a_scalar(), PAIR, compute=ComputeSettings(fully_shard=True)),
        "compute.fully_shard does not work with this model\n"
        "  why: scale, shift has no dimension that could be sharded\n"
        "  fix: give such a parameter one dimension of size 1, or leave compute.fully_shard off",
    ),
    "sharded fp16": (
        lambda: check(None, PAIR, compute=ComputeSettings(fully_shard=True, amp="fp16")),
        "compute.fully_shard does not work with compute.amp=fp16\n"
        "  why: each process would adapt its loss scale to the overflows in its own shard\n"
        "  fix: use --set compute.amp=bf16, which needs no loss scaling",
    ),
    "half-precision sgd": (
        lambda: check(SmallNet().bfloat16(), optimizer=OptimizerSettings(name="sgd")),
        "optimizer.name=sgd does not train this model on a CPU\n"
        "  why: torch's fused SGD doesn't update most torch.bfloat16 weights there (torch 2.13)\n"
        "  fix: use --set optimizer.name=adamw, or single precision weights with --set compute.amp=bf16",
    ),
    "betas": (
        lambda: check(optimizer=OptimizerSettings(betas=(0.9, 0.9, 0.9))),  # type: ignore[arg-type]
        "optimizer.betas has 3 values\n"
        "  why: Adam has two moving averages: of gradients, and of their squares\n"
        "  fix: --set optimizer.betas=0.9,0.999",
    ),
    "no hidden matrices": (
        lambda: make_learner_of(["optimizer.name=muon"], model=nn.Linear(FEATURES, 3)),
        "optimizer.name=muon has nothing to train in this model\n"
        "  why: Muon is for hidden weights of two dimensions, without embeddings and the last linear layer\n"
        "  fix: use --set optimizer.name=adamw",
    ),
    "muon's group": (
        lambda: with_groups(lambda model: [{"params": model.parameters(), "muon": True}], "optimizer.name=muon"),
        "a parameter group of the recipe is not for Muon\n"
        '  why: the group has "muon": True and a parameter of shape (8,); Muon is for two dimensions\n'
        '  fix: leave "muon" out of the group: its parameters are then split by their dimensions',
    ),
    "left-out parameter": (
        lambda: with_groups(lambda model: [{"params": [*model.parameters()][:-2]}]),
        "no parameter group of the recipe has head.weight\n"
        "  why: 2 trainable parameters would never be updated\n"
        "  fix: add them to a group, or freeze them in the recipe's build with requires_grad_(False)",
    ),
    "foreign parameter": (
        lambda: with_groups(lambda model: [{"params": [*model.parameters(), nn.Parameter(torch.ones(1))]}]),
        "a parameter group of the recipe has a parameter that isn't the model's\n"
        "  why: only the model's parameters are saved and averaged over the processes\n"
        "  fix: make it a parameter of the model",
    ),
    "scaling": (
        lambda: plan_rates(Settings(optimizer=OptimizerSettings(scaling="sqrt")), a_plan()),
        "optimizer.scaling=sqrt has nothing to scale from\n"
        "  why: optimizer.base_batch, the global batch that the learning rate was tuned for, is not set\n"
        "  fix: --set optimizer.base_batch=8 if the rate is meant for this batch",
    ),
    "schedule": (
        lambda: plan_rates(Settings(), a_plan(), lambda _: lambda step: -0.5 if step else 1.0),
        "the recipe's schedule returns -0.5 for step 7\n"
        "  why: Workload.make_schedule returns the rate of each step as a share of the peak, at least 0\n"
        "  fix: mend the recipe's make_schedule, or leave it out to use the settings' schedule",
    ),
    "memory": (
        lambda: step(make_learner_of(["micro_batch=1"], model=Full())),
        "out of memory on cpu with a micro-batch of 1\n"
        "  why: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        "  fix: use a smaller model, --set compute.gradient_checkpointing=true, or a device with more memory",
    ),
    "model": (
        lambda: load_weights(nn.Linear(3, 2), {"weight": torch.ones(2, 3), **dict.fromkeys("abcdefg", torch.ones(1))}),
        "the weights don't fit this model\n"
        "  why: missing: bias; not in this model: a, b, c, d, e and 2 more\n"
        "  fix: use the settings that they were trained with, or another checkpoint",
    ),
    "missing weight": (
        lambda: load_weights(nn.Linear(3, 2), {"weight": torch.ones(2, 3)}),
        "the weights don't fit this model\n"
        "  why: missing: bias\n"
        "  fix: use the settings that they were trained with, or another checkpoint",
    ),
    "shape": (
        lambda: load_weights(nn.Linear(3, 1), {"weight": torch.ones(2, 3), "bias": torch.ones(1)}),
        "the weights don't fit this model\n"
        "  why: Error(s) in loading state_dict for Linear: size mismatch for weight: copying a param with shape "
        "torch.Size([2, 3]) from checkpoint, the shape in current model is torch.Size([1, 3]).\n"
        "  fix: use the settings that they were trained with, or another checkpoint",
    ),
}


def a_plan() -> Any:
    return plan_batch(batch_size=8, world_size=1, samples=64, epochs=1)


@pytest.mark.parametrize("case", OF_STEPS)
def test_refusal_of_a_step_says_what_why_and_how_to_mend_it(case: str) -> None:
    """Word for word."""
    act, text = OF_STEPS[case]
    assert text_of(act) == text


def test_muon_under_an_old_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.optim, "Muon")
    assert text_of(lambda: check(optimizer=OptimizerSettings(name="muon"))) == (
        "optimizer.name=muon needs a newer torch\n"
        f"  why: torch {torch.__version__} has no torch.optim.Muon; it came with 2.9\n"
        "  fix: install torch 2.9 or newer, or use --set optimizer.name=adamw"
    )


def test_memory_that_runs_out_in_a_collective_restarts_the_group(tmp_path: Path) -> None:
    """With half the micro-batch in the file for the next start; alone, the step is repeated."""
    err = torch.OutOfMemoryError("HIP out of memory.\nMore")
    assert text_of(lambda: recovery(tmp_path).plan(err, can_repeat=False)) == (
        "out of memory on cpu in a pass that cannot be repeated\n"
        "  why: HIP out of memory.\n"
        "  fix: start again, as torchrun --max-restarts does: the next start uses micro_batch=4"
    )
    assert json.loads((tmp_path / "micro-batch.json").read_text())["micro_batch"] == 4
    said: list[str] = []
    alone = recovery(tmp_path, ALONE, say=said.append)
    answer = alone.plan(err, can_repeat=True)
    assert answer is not None
    answer()
    assert alone.micro_batch == 4
    assert said == ["out of memory: micro-batch 8 -> 4, accumulation x 2, same global batch"]
    fixed = recovery(tmp_path, ALONE, may_halve=False)
    assert text_of(lambda: fixed.plan(err, can_repeat=True)).startswith("out of memory on cpu with a micro-batch of 8")


def test_other_ranks_log_what_the_main_process_prints(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """So that a line of each isn't printed by all."""
    said: list[str] = []
    answer = recovery(tmp_path, SECOND, say=said.append).plan(torch.OutOfMemoryError(), can_repeat=True)
    assert answer is not None
    answer()
    assert not said
    assert caplog.messages == ["rank 1: out of memory: micro-batch 8 -> 4, accumulation x 2, same global batch"]


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")  # the compiler's own use of it
def test_failing_compiler_is_given_up_unless_others_wait(tmp_path: Path) -> None:
    """Its error comes from the compiler, not from what it compiles; a second one is nobody's to mend."""
    said: list[str] = []
    compiler = Compiler(said.append)
    compiler.compile(PlainNet())
    compiled = recovery(tmp_path, ALONE, compiler=compiler, say=said.append)
    err = importlib.import_module("torch._dynamo.exc").TorchDynamoException("no compiler")
    assert compiled.plan(RuntimeError("no compiler"), can_repeat=True) is None
    assert compiled.plan(err, can_repeat=False) is None
    answer = compiled.plan(err, can_repeat=True)
    assert answer is not None
    assert compiler.is_on
    answer()
    assert not compiler.is_on
    assert said == ["torch.compile failed: continuing without it"]
    assert compiled.plan(err, can_repeat=True) is None


def test_operation_that_is_not_deterministic_is_explained() -> None:
    """Torch's two texts, and no other error."""
    texts = [
        "put_ does not have a deterministic implementation, but ...",
        "Deterministic behavior was enabled with ...",
    ]
    for text in texts:
        explained = explain_nondeterminism(RuntimeError(f"{text}\nmore"))
        assert str(explained) == (
            "an operation of the model or the loss is not deterministic\n"
            f"  why: {text}\n"
            "  fix: replace this operation, or use --set compute.deterministic=false"
        )
    assert explain_nondeterminism(RuntimeError("another")) is None
    assert explain_nondeterminism(ValueError(texts[0])) is None


def test_concerns_are_whole_sentences() -> None:
    """What a valid request is warned of."""
    plan = plan_batch(batch_size=8, world_size=8, samples=64, epochs=2)
    assert find_batch_concern(plan) == (
        "1 sample at a time in each process: slow, and batch normalisation has nothing to average over; "
        "8 per process is a good size (--set batch_size=64)"
    )
    settings = Settings().schedule
    long = type(settings)(warmup_steps=2000)
    assert find_schedule_concern(long, plan) == (
        "the rate never reaches its peak: the warm-up has 2,000 steps, and the run 16"
    )
    cut = type(settings)(name="warm_restarts", period_epochs=1, period_factor=2)
    assert find_schedule_concern(cut, plan) == (
        "the last period of warm_restarts is cut short at epoch 2, while the rate is high: periods end at epochs 1, 3"
    )
