"""One optimizer step, with everything that may be put on it."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.trainer import harness
from tests.trainer.learners import FEATURES, SmallNet, make_learner_of, random_batches
from trainer.assembly import check_settings
from trainer.config import OptimizerSettings, Settings
from trainer.distributed import ALONE
from trainer.errors import BadRequestError, DeviceMemoryError, NonFiniteError
from trainer.learner import Learner, StepResult
from trainer.progress import Progress, dump_progress, restore_progress

FAST = 1e-2


class PlainNet(nn.Module):
    """Neither batch norm nor dropout: how a batch is cut changes nothing but rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh())
        self.head = nn.Linear(8, 3)

    def forward(self, values_BF: torch.Tensor) -> torch.Tensor:
        logits_BK: torch.Tensor = self.head(self.block(values_BF))
        return logits_BK


class Scarce(nn.Module):
    """A device that has memory for so many samples at once, and says so in the allocator's own words."""

    def __init__(self, net: nn.Module, *, room: int) -> None:
        super().__init__()
        self.net = net
        self.room = room

    def forward(self, values_BF: torch.Tensor) -> torch.Tensor:
        logits_BK: torch.Tensor = self.net(values_BF)
        if len(values_BF) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return logits_BK


def train_steps(learner: Learner, steps: int = 5) -> dict[str, torch.Tensor]:
    batches = random_batches()
    learner.model.train()
    for number in range(steps):
        learner.step(next(batches), rate=FAST, number=number)
    return harness.copy_state(dict(learner.model.state_dict()))


@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_accumulated_gradient_is_that_of_the_whole_batch(micro_batch: int) -> None:
    """After 5 steps the weights agree to rounding, whatever the micro-batch."""
    whole = train_steps(make_learner_of(model=seeded(PlainNet)))
    cut = train_steps(make_learner_of([f"micro_batch={micro_batch}"], model=seeded(PlainNet)))
    for name, value in whole.items():
        torch.testing.assert_close(cut[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("net", [PlainNet, SmallNet])
def test_gradient_checkpointing_changes_nothing(net: type[nn.Module]) -> None:
    """Weights, dropout's draws and running statistics are the same to the bit, batch norm counted once."""
    plain = train_steps(make_learner_of(model=seeded(net)))
    again = train_steps(make_learner_of(["compute.gradient_checkpointing=on"], model=seeded(net)))
    harness.assert_equal(again, plain, "weights")


def test_recomputed_block_keeps_nothing_of_its_inside() -> None:
    """The block runs twice a step, and once where no gradient is asked for."""
    net = PlainNet()
    calls: list[bool] = []
    net.block[0].register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    learner = make_learner_of(["compute.gradient_checkpointing=on"], model=net)
    train_steps(learner, steps=1)
    assert len(calls) == 2
    learner.model.eval()
    learner.model(torch.zeros(2, FEATURES))
    assert len(calls) == 3


def test_recipe_without_blocks_is_told_that_nothing_is_recomputed() -> None:
    """Gradient checkpointing is left out with a message."""
    said: list[str] = []
    make_learner_of(["compute.gradient_checkpointing=on"], model=nn.Linear(FEATURES, 3), said=said)
    assert said == ["gradient_checkpointing left out: the recipe names no blocks (Workload.blocks)"]


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_mixed_precision_computes_low_and_keeps_weights_high(amp: str) -> None:
    """The head's output has the lower type, weights and gradients stay float32, and the loss falls."""
    net = SmallNet()
    types: list[torch.dtype] = []
    net.head.register_forward_hook(lambda _module, _inputs, output: types.append(output.dtype))
    learner = make_learner_of([f"compute.amp={amp}"], model=net)
    batch = next(random_batches())
    learner.model.train()
    losses = [learner.step(batch, rate=FAST, number=number).loss.item() for number in range(30)]
    assert set(types) == {torch.bfloat16 if amp == "bf16" else torch.float16}
    assert {parameter.dtype for parameter in net.parameters()} == {torch.float32}
    assert losses[-1] < 0.8 * losses[0]


def test_fp16_scale_is_halved_when_gradients_overflow_and_kept_in_the_state() -> None:
    """A loss far too large for fp16: the step is skipped, the scale falls, and a resumed learner has it."""
    learner = make_learner_of(["compute.amp=fp16"])
    before = learner.precision.state()["scale"]
    values_BF, labels_B = next(random_batches())
    learner.model.train()
    result = learner.step((values_BF * 1e4, labels_B), rate=FAST, number=0)
    for number in range(1, 4):
        learner.step((values_BF * 1e30, labels_B), rate=FAST, number=number)
    assert result.skipped.item() in (0.0, 1.0)
    assert learner.precision.state()["scale"] < before
    other = make_learner_of(["compute.amp=fp16"])
    other.load(harness.copy_state(learner.state()))
    assert other.precision.state() == learner.precision.state()


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("clip_norm", [0, 1])
def test_step_without_a_finite_gradient_is_skipped_and_counted(optimizer: str, clip_norm: int) -> None:
    """Weights, moments, step count and running statistics are as before the step; the next one works."""
    learner = make_learner_of([f"optimizer.name={optimizer}", f"optimizer.clip_norm={clip_norm}"])
    train_steps(learner, steps=2)
    before = harness.copy_state(learner.state())
    values_BF, labels_B = next(random_batches())
    result = learner.step((values_BF * float("nan"), labels_B), rate=FAST, number=2)
    assert result.skipped.item() == 1
    harness.assert_equal(learner.state(), before, "learner")
    assert learner.step((values_BF, labels_B), rate=FAST, number=3).skipped.item() == 0


@pytest.mark.parametrize(
    ("dtype", "optimizer"),
    [(torch.float64, "adamw"), (torch.bfloat16, "adamw"), (torch.float64, "sgd")],
)
def test_weights_of_another_precision_learn_and_skip(dtype: torch.dtype, optimizer: str) -> None:
    """A recipe's model may be all bf16, or double."""
    learner = make_learner_of([f"optimizer.name={optimizer}"], model=SmallNet(dropout=0.0).to(dtype))
    values_BF, labels_B = next(random_batches())
    before = harness.copy_state(learner.state())
    assert learner.step((values_BF.to(dtype) * float("nan"), labels_B), rate=FAST, number=0).skipped.item() == 1
    harness.assert_equal(learner.state()["model"], before["model"], "weights")
    assert learner.step((values_BF.to(dtype), labels_B), rate=1.0, number=1).skipped.item() == 0
    assert not torch.equal(learner.parameters[0], before["model"]["block.0.weight"])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_first_step_that_is_skipped_leaves_nothing_in_the_momentum(momentum: float) -> None:
    """Torch takes uncleared memory for it and then goes on from what is there: ours ends as if it hadn't been."""
    skipping, steady = (
        make_learner_of(["optimizer.name=sgd", f"optimizer.momentum={momentum}"], model=seeded(PlainNet))
        for _ in range(2)
    )
    values_BF, labels_B = next(random_batches())
    dirt = [torch.full((size,), 1e6) for size in (8, 24, 48) for _ in range(50)]
    del dirt  # whoever takes memory now finds that in it
    skipping.step((values_BF * float("nan"), labels_B), rate=FAST, number=0)
    for learner in (skipping, steady):
        learner.step((values_BF, labels_B), rate=FAST, number=1)
    harness.assert_equal(skipping.state()["model"], steady.state()["model"], "weights")


def test_half_precision_weights_that_sgd_leaves_alone_on_a_cpu_are_refused() -> None:
    """Torch's fused SGD would train nothing, and say nothing."""
    settings = Settings(optimizer=OptimizerSettings(name="sgd"))
    check_settings(settings, SmallNet(), ALONE)
    with pytest.raises(BadRequestError, match="does not train this model on a CPU"):
        check_settings(settings, SmallNet().bfloat16(), ALONE)


def test_many_skipped_steps_in_a_row_end_the_run() -> None:
    """Three are allowed: the third raises, a good one in between starts the count anew."""
    learner, progress = make_learner_of(), Progress()
    values_BF, labels_B = next(random_batches())
    for scale in (float("nan"), float("nan"), 1.0, float("inf"), float("nan")):
        progress.add(learner.step((values_BF * scale, labels_B), rate=FAST, number=0))
    progress.settle()
    progress.check_skips(3)
    assert (progress.window.skipped, progress.skipped_in_a_row) == (4, 2)
    restored = restore_progress(dump_progress(progress, ALONE))
    assert restored == progress
    restored.add(learner.step((values_BF * float("nan"), labels_B), rate=FAST, number=0))
    restored.settle()
    with pytest.raises(NonFiniteError, match="3 steps in a row, up to step 6"):
        restored.check_skips(3)


def test_means_do_not_depend_on_when_the_figures_are_fetched() -> None:
    """After each step, after all 600, or when the device would hold too many: the same sums to the bit."""
    draw = torch.Generator().manual_seed(0)
    losses = torch.rand(600, generator=draw)
    every, once = Progress(), Progress()
    for loss in losses:
        for progress in (every, once):
            progress.add(StepResult(loss, loss * 3, torch.zeros(())))
        every.settle()
    assert len(once.pending) < 300
    once.settle()
    assert once == every
    assert once.window.steps == once.step == 600
    assert once.window.loss == pytest.approx(losses.double().sum().item(), rel=1e-12)


def test_average_follows_the_weights_and_is_what_is_evaluated() -> None:
    """The average equals the formula, with the decay growing from 0.1, and leaves the model alone."""
    averaged, plain = (
        make_learner_of(settings, model=seeded(lambda: SmallNet(dropout=0))) for settings in (["ema_decay=0.5"], [])
    )
    names = [name for name, _ in averaged.model.named_parameters()]
    expected = {name: averaged.model.state_dict()[name].clone() for name in names}
    batches, same = random_batches(), random_batches()
    for number in range(6):
        averaged.step(next(batches), rate=FAST, number=number)
        plain.step(next(same), rate=FAST, number=number)
        decay = min(0.5, (1 + number) / (10 + number))
        for name, value in averaged.model.named_parameters():
            expected[name] += (1 - decay) * (value.detach() - expected[name])
    found = averaged.evaluated.state_dict()
    for name in names:
        torch.testing.assert_close(found[name], expected[name])
    harness.assert_equal(dict(averaged.model.state_dict()), dict(plain.model.state_dict()), "model")
    averaged.prepare_evaluation()
    for ours, theirs in zip(averaged.evaluated.buffers(), averaged.model.buffers(), strict=True):
        assert torch.equal(ours, theirs)
    assert plain.evaluated is plain.model


def test_clipping_bounds_the_update_by_the_whole_batchs_norm() -> None:
    """With SGD at rate 1 the weights move by exactly the clipped gradient."""
    settings = ["optimizer.name=sgd", "optimizer.momentum=0", "optimizer.weight_decay=0", "optimizer.clip_norm=0.01"]
    learner = make_learner_of([*settings, "micro_batch=2"], model=seeded(PlainNet))
    before = torch.cat([value.detach().flatten().clone() for value in learner.parameters])
    result = learner.step(next(random_batches()), rate=1.0, number=0)
    after = torch.cat([value.detach().flatten() for value in learner.parameters])
    assert result.grad_norm.item() > 0.01
    assert (after - before).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_moments_of_another_memory_format_go_on_as_they_were() -> None:
    """Begun channels last and resumed without it: the same next steps, up to rounding."""

    def conv_net() -> nn.Module:
        return nn.Sequential(nn.Unflatten(1, (3, 1, 2)), nn.Conv2d(3, 4, (1, 2)), nn.Flatten(), nn.Linear(4, 3))

    turned, plain = (
        make_learner_of([f"compute.channels_last={value}"], model=seeded(conv_net)) for value in ("on", "off")
    )
    train_steps(turned, steps=3)
    plain.load(harness.copy_state(turned.state()))
    for learner in (turned, plain):
        train_steps(learner, steps=2)
    for ours, theirs in zip(plain.parameters, turned.parameters, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_channels_last_weights_learn_the_same() -> None:
    """Convolutions' weights lie channels last, and stay so; the result agrees to rounding."""

    def conv_net() -> nn.Module:
        return nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.Flatten(), nn.Linear(8, 3))

    plain, turned = (
        make_learner_of([f"compute.channels_last={value}"], model=seeded(conv_net)) for value in ("off", "on")
    )
    expected, found = train_steps(plain), train_steps(turned)
    weight = turned.model.get_submodule("1").weight
    assert isinstance(weight, torch.Tensor)
    assert weight.is_contiguous(memory_format=torch.channels_last)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)


def test_out_of_memory_halves_the_micro_batch_and_does_the_step_again() -> None:
    """Room for 2 of 8 samples: two halvings, said; from then on it is as a run with micro_batch=2, to the bit.

    Running statistics and dropout's draws of the failed attempts are taken back.
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
    """Nothing is left to halve: one clear error."""
    learner = make_learner_of(model=Scarce(PlainNet(), room=0))
    with pytest.raises(DeviceMemoryError, match="micro-batch of 1") as caught:
        learner.step(next(random_batches(batch_size=1)), rate=FAST, number=0)
    assert "gradient_checkpointing" in caught.value.fix


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    """A bug in a recipe surfaces as it is, at once."""
    learner = make_learner_of()
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        learner.step((torch.zeros(8, FEATURES + 1), torch.zeros(8, dtype=torch.int64)), rate=FAST, number=0)


def test_micro_batch_left_for_the_next_start_is_used_for_the_same_setting_only(tmp_path: Path) -> None:
    """A process that could not go on left 2; another micro_batch that is asked for makes that void."""
    learner = make_learner_of(folder=tmp_path)
    learner.for_restart.write(2)
    said: list[str] = []
    assert make_learner_of(folder=tmp_path, said=said).micro_batch == 2
    assert said == ["micro-batch 2 instead of 8: an earlier start ran out of memory"]
    assert make_learner_of(["micro_batch=4"], folder=tmp_path).micro_batch == 4
    (tmp_path / "micro-batch.json").write_text("{")
    assert make_learner_of(folder=tmp_path).micro_batch == 8


@pytest.mark.slow
def test_compiled_run_learns_the_same_and_ends_with_the_same_bits_after_a_stop(tmp_path: Path) -> None:
    """A real compiler: with dropout killed and resumed to the bit, without it the first losses of an eager run."""
    settings = (*harness.SMALL, "compute.compile=on")
    cache = str(tmp_path / "cache")
    whole = harness.run(tmp_path / "whole", *settings, TORCHINDUCTOR_CACHE_DIR=cache)
    assert whole.code == 0, whole.err
    assert "torch.compile failed" not in whole.out
    assert any(Path(cache).rglob("*.so"))
    process = harness.start(tmp_path / "cut", *settings, TORCHINDUCTOR_CACHE_DIR=cache)
    harness.wait_for_step(tmp_path / "cut", 30, process)
    process.kill()
    harness.finish(process)
    ended = harness.run(tmp_path / "cut", *settings, TORCHINDUCTOR_CACHE_DIR=cache)
    assert ended.code == 0, ended.err
    harness.assert_same_run(tmp_path / "cut", tmp_path / "whole")
    plain = (*settings, "model.dropout=0", "epochs=1")
    assert harness.run(tmp_path / "compiled", *plain, TORCHINDUCTOR_CACHE_DIR=cache).code == 0
    assert harness.call(tmp_path / "eager", *plain, "compute.compile=off") == 0
    ours, theirs = ([row["loss"] for row in harness.read_rows(tmp_path / name)[:20]] for name in ("compiled", "eager"))
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_compiler_that_does_not_work_is_given_up_with_a_message(small_run: Path, tmp_path: Path) -> None:
    """No C++ compiler: one line, and the same bits as without compiling."""
    folder, compiler = tmp_path / "output", str(tmp_path / "no-such-compiler")
    settings = (*harness.SMALL, "compute.compile=on")
    ended = harness.run(folder, *settings, CXX=compiler, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"))
    assert ended.code == 0, ended.err
    assert ended.out.count("torch.compile failed here: going on without it") == 1
    harness.assert_same_run(folder, small_run)


def seeded(make: object) -> nn.Module:
    """Make a model with the same first weights each time."""
    torch.manual_seed(0)
    model = make()  # type: ignore[operator]
    assert isinstance(model, nn.Module)
    return model
