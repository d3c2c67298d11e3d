"""advise: what it recommends for several GPUs, and its forecast of memory."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, record_function

from trainer.base.config import ComputeSettings, OptimizerSettings, Settings
from trainer.base.contract import read_contract
from trainer.base.errors import BadRequestError
from trainer.base.recipe import BuiltWorkload, Moment, Recipe, Workload
from trainer.base.signals import StopFlag
from trainer.base.sources import Batch
from trainer.cli import main
from trainer.find.advice import Advice, Facts, plan_advice, render_advice, shard_facts
from trainer.find.advise import advise
from trainer.find.forecast import forecast_memory
from trainer.find.trial import make_batch, prepare_trial
from trainer.group.distributed import ALONE
from trainer.step.build import build_workload
from trainer.step.learner import Learner

# Shape legend: B batch, C channels, H height, W width, T tokens, K classes.
CLASSES, TOKENS = 10, 48
GIB = 1024**3


class Pictures:
    """Random pictures of 3 x 32 x 32 with their class."""

    def __len__(self) -> int:
        return 640

    def sample(self, index: int, rng: np.random.Generator) -> Batch:
        return torch.from_numpy(rng.random((3, 32, 32), dtype=np.float32)), index % CLASSES


class Texts:
    """Random tokens, each of which predicts itself."""

    def __len__(self) -> int:
        return 640

    def sample(self, _index: int, rng: np.random.Generator) -> Batch:
        return {"tokens": torch.from_numpy(rng.integers(256, size=TOKENS))}


class ConvNet(nn.Module):
    """Convolutions with and without a stride, batch norm, ReLU in place."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
            nn.Conv2d(64, 64, 3, padding=1),
        )  # fmt: skip
        self.head = nn.Linear(64, CLASSES)

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        logits_BK: torch.Tensor = self.head(self.body(images_BCHW).mean(dim=(2, 3)))
        return logits_BK


class TextNet(nn.Module):
    """A small transformer whose output layer shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(256, 64)
        layer = nn.TransformerEncoderLayer(64, 4, dim_feedforward=256, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(64, 256, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        logits_BTK: torch.Tensor = self.head(self.layers(self.words(tokens_BT)))
        return logits_BTK


def picture_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    images_BCHW, labels_B = batch
    return functional.cross_entropy(model(images_BCHW), labels_B)


def text_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    tokens_BT = batch["tokens"]
    return functional.cross_entropy(model(tokens_BT).flatten(0, 1), tokens_BT.flatten())


def picture_recipe(loss: Any = picture_loss, **settings: Any) -> Recipe[Settings]:
    return Recipe(
        settings=Settings(**{"batch_size": 16, **settings}),
        build=lambda _: Workload(model=ConvNet(), train_data=Pictures(), validation_data=Pictures(), loss=loss),
    )


def text_recipe(**settings: Any) -> Recipe[Settings]:
    return Recipe(
        settings=Settings(**{"batch_size": 16, **settings}),
        build=lambda _: Workload(model=TextNet(), train_data=Texts(), validation_data=Texts(), loss=text_loss),
    )


def learner_of(recipe: Recipe[Settings], workload: BuiltWorkload) -> Learner:
    return prepare_trial(recipe, workload, read_contract({}), ALONE, lambda _: None).learner


def measure_peak(recipe: Recipe[Settings], *, samples: int, micro_batch: int) -> int:
    """The most memory of a step that the CPU's allocator gave out, by torch's profiler; kernels' own is in it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        workload = build_workload(recipe)
        learner = learner_of(recipe, workload)
        learner.model.train()
        learner.expect_share(samples, micro_batch=micro_batch)
        batch = make_batch(workload, samples, torch.device("cpu"))
        for number in range(2):
            with record_function("the last step" if number else "the first step"):
                learner.step(batch, rate=1e-3, moment=Moment(step=number))
    events = measured.profiler.kineto_results.events()
    begin = next(event.start_ns() for event in events if event.name() == "the last step")
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    in_use = np.cumsum([size for _, size in changes])
    return int(in_use[[when >= begin for when, _ in changes]].max())


@pytest.mark.parametrize("recipe", [picture_recipe(), text_recipe()], ids=["convolutions", "transformer"])
def test_forecast_is_within_15_percent_of_what_the_allocator_gave(recipe: Recipe[Settings]) -> None:
    """Micro-batches of 1, 4 and 16, and 16 samples accumulated by 4; measured by torch's profiler on the CPU."""
    requests = [(1, 1), (4, 4), (16, 16), (16, 4)]
    workload = build_workload(recipe)
    batches = [(make_batch(workload, samples, torch.device("cpu")), samples, size) for samples, size in requests]
    found = forecast_memory(workload.model, lambda: learner_of(recipe, workload), batches)
    measured = [measure_peak(recipe, samples=samples, micro_batch=size) for samples, size in requests]
    assert list(found.peaks) == pytest.approx(measured, rel=0.15)


def test_forecast_counts_each_part_exactly() -> None:
    """A tied weight once, AdamW's two moments and its step counts, an EMA's copy; the real weights are untouched."""
    recipe = text_recipe(ema_decay=0.9)
    workload = build_workload(recipe)
    parameters = list(workload.model.parameters())
    weights = sum(parameter.nbytes for parameter in parameters)
    before = [parameter.clone() for parameter in parameters]
    batches = [(make_batch(workload, 2, torch.device("cpu")), 2, 2)]
    found = forecast_memory(workload.model, lambda: learner_of(recipe, workload), batches)
    assert found.gradients == weights
    assert found.weights == 2 * weights
    assert found.optimizer == 2 * weights + 4 * len(parameters)
    assert all(torch.equal(now, then) for now, then in zip(parameters, before, strict=True))


FACTS = Facts(samples=6400, sample_seconds=0.01, cores=64, memory={}, memory_source="not known", parts={}, available=0)


def recommended(advice: Advice) -> dict[str, float]:
    return {item.name: item.value for item in advice.recommended}


def test_batch_and_rates_follow_the_number_of_gpus() -> None:
    """A reference workflow's table: 8 samples on one GPU at 2e-4, up to 8 GPUs; 8 a GPU are kept."""
    settings = Settings(batch_size=8, optimizer=OptimizerSettings(learning_rate=2e-4))
    advice = plan_advice(settings, FACTS, gpus=8)
    assert [(row.gpus, row.batch) for row in advice.scaling] == [(1, 8), (2, 16), (4, 32), (8, 64)]
    assert [row.linear for row in advice.scaling] == pytest.approx([2e-4, 4e-4, 8e-4, 1.6e-3])
    assert [row.square_root for row in advice.scaling] == pytest.approx([2e-4, 2.83e-4, 4e-4, 5.66e-4], rel=2e-3)
    assert recommended(advice)["batch_size"] == 64
    assert recommended(advice)["learning rate"] == pytest.approx(5.66e-4, rel=2e-3)
    assert {"optimizer.scaling=sqrt", "optimizer.base_batch=8"} <= set(advice.settings)
    sgd = replace(settings, optimizer=replace(settings.optimizer, name="sgd"))
    assert recommended(plan_advice(sgd, FACTS, gpus=8))["learning rate"] == pytest.approx(1.6e-3)
    assert [row.gpus for row in plan_advice(settings, FACTS, gpus=6).scaling] == [1, 2, 4, 6]


def test_micro_batch_is_the_largest_that_leaves_a_tenth_free() -> None:
    """32 samples need 9.5 of 10 GiB, 16 need 6: 16, accumulated twice; and the smallest if none fits."""
    memory = {32: int(9.5 * GIB), 16: 6 * GIB, 8: 4 * GIB}
    facts = replace(FACTS, memory=memory, available=10 * GIB)
    advice = plan_advice(Settings(batch_size=32), facts, gpus=2)
    assert (recommended(advice)["micro_batch"], recommended(advice)["accumulation"]) == (16, 2)
    assert "micro_batch=16" in advice.settings
    none = plan_advice(Settings(batch_size=32), replace(facts, available=GIB), gpus=2)
    assert recommended(none)["micro_batch"] == 8
    assert any("none fits into 1 GiB" in item.reason for item in none.recommended)


def test_shards_need_a_part_of_the_weights_and_the_block_in_use() -> None:
    """6 GiB of weights, gradients and state over 4 GPUs: 1.5 each, and 1 for gathered weights; activations stay."""
    parts = {"weights": 2 * GIB, "gradients": GIB, "optimizer": 3 * GIB}
    facts = replace(FACTS, memory={8: 9 * GIB, 16: None}, parts=parts)
    sharded = shard_facts(facts, gpus=4, gathered=GIB)
    assert sharded.memory == {8: int(5.5 * GIB), 16: None}
    assert sharded.parts == {"weights": GIB // 2, "gradients": GIB // 4, "optimizer": 3 * GIB // 4}
    said: list[str] = []
    recipe = text_recipe(compute=ComputeSettings(fully_shard=True))
    whole, shards = (advise(recipe, read_contract({}), said.append, gpus=gpus) for gpus in (1, 4))
    assert shards.parts["optimizer"] == pytest.approx(whole.parts["optimizer"] / 4, abs=1)
    assert "estimated for 4 shards" in said[1]


@pytest.mark.parametrize(
    ("seconds", "cores", "is_stream", "workers"),
    [(1e-6, 64, False, 0), (0.01, 64, False, 7), (0.01, 2, False, 1), (0.01, 640, False, 8), (0.01, 64, True, 1)],
)
def test_workers_follow_the_cores_unless_samples_are_quick(
    seconds: float, cores: int, is_stream: bool, workers: int
) -> None:
    """None for a batch in microseconds, else a core of each process's share less one, one for a stream."""
    facts = replace(FACTS, sample_seconds=seconds, cores=cores, is_stream=is_stream)
    assert recommended(plan_advice(Settings(batch_size=8), facts, gpus=8))["workers"] == workers


def test_small_data_get_smaller_shares_and_a_note() -> None:
    """20 samples on 8 GPUs: 2 each; one step an epoch is said to be few. Fewer samples than GPUs are refused."""
    advice = plan_advice(Settings(batch_size=8), replace(FACTS, samples=20), gpus=8)
    assert recommended(advice)["batch_size"] == 16
    assert "only 1 steps" in advice.notes[0]
    with pytest.raises(BadRequestError, match="zero steps"):
        plan_advice(Settings(batch_size=8), replace(FACTS, samples=7), gpus=8)


def test_table_fits_80_columns_and_gives_reasons() -> None:
    """Also with long names of devices and large figures; --set stays with its assignment."""
    memory: dict[int, int | None] = {1024: None, 512: 123 * GIB}
    facts = replace(
        FACTS, memory=memory, available=140 * GIB, memory_source="measured on NVIDIA H200 " + 12 * "very long "
    )
    advice = plan_advice(Settings(batch_size=1024, epochs=2), replace(facts, samples=10**7), gpus=4096)
    lines = render_advice(advice).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(item.reason for item in advice.recommended)
    assert any("out of memory" in line for line in lines)
    assert not any(line.endswith("--set") for line in lines)


def test_advise_prints_a_table_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On digits, with the memory of a GPU given; nothing is written."""
    argv = ["advise", "digits", "--gpus", "4", "--memory-gib", "0.003", "--output-dir", str(tmp_path / "output")]
    assert main(argv, environ={}, stop=StopFlag()) == 0
    table = capsys.readouterr().out
    assert "--set batch_size=256 --set optimizer.scaling=sqrt" in table
    assert main([*argv, "--json"], environ={}, stop=StopFlag()) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["batch"] for row in found["scaling"]] == [64, 128, 256]
    assert list(found["memory"]) == ["64", "32", "16", "8", "4"]
    # 64 samples take 5.5 MiB, 32 take 3.7, and 16 fit into 2.7 of 3.07 MiB.
    assert next(item for item in found["recommended"] if item["name"] == "micro_batch")["value"] == 16
    assert not (tmp_path / "output").exists()


def test_step_that_cannot_be_traced_gets_advice_without_memory() -> None:
    """A tensor's shape depends on values: that is said. A value that the host reads is no obstacle."""

    def by_value(model: nn.Module, batch: Batch) -> torch.Tensor:
        images_BCHW, labels_B = batch
        return functional.cross_entropy(model(images_BCHW[labels_B > 2]), labels_B[labels_B > 2])

    def read(model: nn.Module, batch: Batch) -> torch.Tensor:
        loss = picture_loss(model, batch)
        return loss if loss.item() < 100 else 0 * loss

    said: list[str] = []
    assert not advise(picture_recipe(by_value), read_contract({}), said.append, gpus=2).memory
    assert "can't be traced" in said[0]
    assert advise(picture_recipe(read), read_contract({}), said.append, gpus=2).memory


def test_advise_under_torchrun_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """One process gives advice for any number."""
    assert main(["advise", "digits"], environ={"WORLD_SIZE": "2"}, stop=StopFlag()) == 2
    assert "without torchrun" in capsys.readouterr().err
