"""Optimizers and their groups: the settings' and a recipe's own; what they do, and how they resume."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer import divided_run, harness
from tests.trainer.learners import FAST, FEATURES, make_learner_of, mean_loss, random_batches, seeded
from trainer.base.config import OptimizerSettings, Settings
from trainer.base.contract import read_contract
from trainer.base.errors import BadRequestError
from trainer.base.overrides import apply_overrides
from trainer.base.recipe import BuiltWorkload, Moment, Recipe
from trainer.base.signals import StopFlag
from trainer.checkpoints.document import read_document, write_document
from trainer.checkpoints.tree import flatten
from trainer.data.sources import ArraySource
from trainer.group.distributed import ALONE
from trainer.run.engine import run_recipe
from trainer.step.assembly import check_settings, make_learner
from trainer.step.batch import plan_batch
from trainer.step.learner import Learner
from trainer.step.optimizers import can_skip_on_device, make_optimizer

# Shape legend: B batch, F features, K classes, T tokens, D width.
Groups = Sequence[Mapping[str, Any]]


class WordNet(nn.Module):
    """An embedding, a hidden layer with normalisation, and a head: every kind of weight that Muon tells apart."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 8)
        self.hidden = nn.Linear(8, 8)
        self.norm = nn.LayerNorm((FEATURES, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, values_BF: torch.Tensor) -> torch.Tensor:
        words_BFD = self.words(values_BF.abs().mul(3).long().clamp(max=9))
        logits_BK: torch.Tensor = self.head(self.norm(self.hidden(words_BFD).tanh()).mean(dim=1))
        return logits_BK


def workload_of(model: nn.Module, **parts: Any) -> BuiltWorkload:
    source = ArraySource(torch.zeros(8, 1, 8, 8), torch.zeros(8))
    return BuiltWorkload(model=model, train_data=source, validation_data=source, loss=mean_loss, **parts)


def learner_of(*assignments: str, **parts: Any) -> Learner:
    """A learner of a WordNet with a recipe's own groups or optimizer."""
    settings = apply_overrides(Settings(batch_size=8), assignments)
    plan = plan_batch(batch_size=8, world_size=1, samples=64, epochs=1)
    workload = workload_of(seeded(WordNet), **parts)
    return make_learner(settings, workload, ALONE, plan, restart_file=Path("nowhere"), say=lambda _: None)


def take_steps(learner: Learner, numbers: range) -> None:
    batches = random_batches()
    for number, batch in zip(range(numbers.stop), batches, strict=False):
        if number in numbers:
            learner.step(batch, rate=FAST, moment=Moment(step=number))


def weights_of(learner: Learner) -> dict[str, torch.Tensor]:
    return harness.copy_state(dict(learner.model.state_dict()))


def written_and_read(state: dict[str, Any], folder: Path) -> Any:
    path = folder / "state.safetensors"
    with path.open("wb") as stream:
        write_document(stream, flatten(state))
    return read_document(path)


def groups_by_kind(model: nn.Module) -> list[dict[str, Any]]:
    """A recipe's groups: a slow embedding, the rest."""
    assert isinstance(model, WordNet)
    slow = list(model.words.parameters())
    rest = [item for name, item in model.named_parameters() if not name.startswith("words")]
    return [{"params": slow, "lr_scale": 0.5, "weight_decay": 0.0}, {"params": rest}]


OURS: dict[str, Any] = {"lr": FAST, "weight_decay": 0.1}
REFERENCES: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda params: torch.optim.AdamW(params, betas=(0.8, 0.9), foreach=False, **OURS),
    "adam": lambda params: torch.optim.Adam(params, betas=(0.8, 0.9), foreach=False, **OURS),
    "sgd": lambda params: torch.optim.SGD(params, momentum=0.7, nesterov=True, foreach=False, **OURS),
}


def updated(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights after five steps on the same batches."""
    for _, batch in zip(range(5), random_batches(), strict=False):
        optimizer.zero_grad()
        mean_loss(model, batch).backward()  # type: ignore[no-untyped-call]
        for group in optimizer.param_groups:
            group["lr"] = FAST
        optimizer.step()
    return harness.copy_state(dict(model.state_dict()))


@pytest.mark.parametrize("name", REFERENCES)
def test_settings_reach_torchs_optimizer(name: str) -> None:
    """Rate, weight decay, momentum and betas: five steps equal those of torch's own, unfused, to rounding."""
    settings = OptimizerSettings(name=name, weight_decay=0.1, momentum=0.7, betas=(0.8, 0.9))  # type: ignore[arg-type]
    ours, theirs = seeded(WordNet), seeded(WordNet)
    optimizer = make_optimizer(settings, ours, workload_of(ours))
    assert can_skip_on_device(optimizer)
    found, expected = updated(optimizer, ours), updated(REFERENCES[name](theirs.parameters()), theirs)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-7)


def test_muon_gets_hidden_matrices_and_adamw_the_rest() -> None:
    """The hidden layer's weight moves as under torch's Muon, everything else as under torch's AdamW, to the bit."""
    settings = OptimizerSettings(name="muon", weight_decay=0.1, momentum=0.7)
    ours, theirs = seeded(WordNet), seeded(WordNet)
    found = updated(make_optimizer(settings, ours, workload_of(ours)), ours)
    muon = torch.optim.Muon(
        [theirs.get_parameter("hidden.weight")], momentum=0.7, adjust_lr_fn="match_rms_adamw", **OURS
    )
    others = [item for name, item in theirs.named_parameters() if name != "hidden.weight"]
    adamw = torch.optim.AdamW(others, fused=True, **OURS)
    for _, batch in zip(range(5), random_batches(), strict=False):
        theirs.zero_grad()
        mean_loss(theirs, batch).backward()  # type: ignore[no-untyped-call]
        muon.step()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        adamw.step()
    harness.assert_equal(found, dict(theirs.state_dict()), "weights")


def test_groups_say_which_matrices_are_muons() -> None:
    """An embedding in a group with "muon": True is Muon's; a group with False has only AdamW's state."""
    learner = learner_of(
        "optimizer.name=muon",
        parameter_groups=lambda model: [
            {"params": model.words.weight, "muon": True},
            {"params": [item for name, item in model.named_parameters() if name != "words.weight"], "muon": False},
        ],
    )
    take_steps(learner, range(1))
    state, model = learner.optimizer.state, learner.model
    assert list(state[model.get_parameter("words.weight")]) == ["momentum_buffer"]
    assert "exp_avg" in state[model.get_parameter("hidden.weight")]


def test_norms_and_biases_do_not_decay_if_the_flag_is_off() -> None:
    """With gradients of zero, AdamW only decays: matrices shrink, biases and a norm of two dimensions don't."""
    for flag, kept in ((False, {"hidden.bias", "head.bias", "norm.weight", "norm.bias"}), (True, set())):
        model = seeded(WordNet)
        nn.init.ones_(model.get_parameter("norm.bias"))
        before = harness.copy_state(dict(model.state_dict()))
        settings = OptimizerSettings(weight_decay=0.5, decay_norms=flag)
        optimizer = make_optimizer(settings, model, workload_of(model))
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        assert {name for name, value in model.state_dict().items() if torch.equal(value, before[name])} == kept


def test_scale_of_a_group_multiplies_the_rate() -> None:
    """Under plain SGD half the rate is half the way, also after a checkpoint; the other group is not affected."""
    plain = ("optimizer.name=sgd", "optimizer.momentum=0", "optimizer.weight_decay=0")
    start = dict(seeded(WordNet).state_dict())
    ours, theirs = learner_of(*plain, parameter_groups=groups_by_kind), learner_of(*plain)
    ours.load(harness.copy_state(ours.state()))
    for learner in (ours, theirs):
        take_steps(learner, range(1))
    for name, value in weights_of(ours).items():
        way = (theirs.model.state_dict()[name] - start[name]) * (0.5 if name.startswith("words") else 1.0)
        torch.testing.assert_close(value - start[name], way, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("assignments", [["optimizer.name=muon"], ["optimizer.decay_norms=false"]])
def test_optimizer_goes_on_from_a_checkpoint_to_the_bit(assignments: list[str], tmp_path: Path) -> None:
    """Three steps, a checkpoint, three more: the same weights and moments as after six."""
    whole, first = learner_of(*assignments), learner_of(*assignments)
    take_steps(whole, range(6))
    take_steps(first, range(3))
    second = learner_of(*assignments)
    second.load(written_and_read(first.state(), tmp_path))
    take_steps(second, range(3, 6))
    harness.assert_equal(second.state(), whole.state(), "state")


def test_changed_weight_decay_is_used_after_a_resume() -> None:
    """A checkpoint has the options of its time; those of this start count."""
    first = learner_of("optimizer.weight_decay=0.1")
    take_steps(first, range(2))
    resumed = learner_of("optimizer.weight_decay=0.3")
    resumed.load(harness.copy_state(first.state()))
    assert [group["weight_decay"] for group in resumed.optimizer.param_groups] == [0.3]


def test_checkpoint_without_names_goes_on() -> None:
    """Earlier versions wrote none: the order of the parameters counts."""
    first, resumed = learner_of(), learner_of()
    take_steps(first, range(2))
    old = harness.copy_state(first.state())
    for group in old["optimizer"]["param_groups"]:
        del group["param_names"]
    resumed.load(old)
    harness.assert_equal(resumed.state(), first.state(), "state")


def test_muon_skips_a_step_whose_gradient_is_not_finite() -> None:
    """Weights and moments stay as they were, and the step is counted as skipped."""
    learner = learner_of("optimizer.name=muon")
    take_steps(learner, range(2))
    assert not can_skip_on_device(learner.optimizer)
    before = harness.copy_state(learner.state())
    nn.init.constant_(learner.model.get_parameter("head.bias"), float("inf"))
    values_BF, labels_B = next(random_batches())
    result = learner.step((values_BF, labels_B), rate=FAST, moment=Moment(step=2))
    assert result.skipped.item() == 1
    harness.assert_equal(learner.state()["optimizer"]["state"], before["optimizer"]["state"], "moments")


def test_recipe_makes_its_own_optimizer_of_its_own_groups() -> None:
    """It gets the groups as they are, and the learner uses what it returns; its group's own keys survive a resume."""
    seen: list[Groups] = []

    def make(groups: Groups) -> torch.optim.Optimizer:
        seen.append(groups)
        return torch.optim.RMSprop([{**group, "count": 0} for group in groups], lr=FAST)

    learner = learner_of(parameter_groups=groups_by_kind, make_optimizer=make)
    assert isinstance(learner.optimizer, torch.optim.RMSprop)
    assert [group.get("lr_scale") for group in seen[0]] == [0.5, None]
    learner.optimizer.param_groups[0]["count"] = 7
    again = learner_of(parameter_groups=groups_by_kind, make_optimizer=make)
    again.load(harness.copy_state(learner.state()))
    assert again.optimizer.param_groups[0]["count"] == 7


def test_groups_that_miss_a_parameter_are_refused() -> None:
    """It would silently never learn; a frozen one may be left out."""

    def without_head(model: nn.Module) -> Groups:
        return [{"params": [item for name, item in model.named_parameters() if "head" not in name]}]

    with pytest.raises(BadRequestError, match="has head") as caught:
        learner_of(parameter_groups=without_head)
    assert "2 trainable" in caught.value.why
    frozen = seeded(WordNet)
    frozen.get_submodule("head").requires_grad_(requires_grad=False)
    make_optimizer(OptimizerSettings(), frozen, workload_of(frozen, parameter_groups=without_head))
    with pytest.raises(BadRequestError, match="isn't the model's"):
        learner_of(parameter_groups=lambda model: [{"params": [*model.parameters(), nn.Parameter(torch.ones(1))]}])


def test_muon_refuses_what_is_not_a_matrix() -> None:
    """A model without hidden matrices, and a recipe's group with a bias in it."""
    with pytest.raises(BadRequestError, match="nothing to train"):
        make_learner_of(["optimizer.name=muon"], model=nn.Linear(FEATURES, 3))
    with pytest.raises(BadRequestError, match="not for Muon"):
        learner_of("optimizer.name=muon", parameter_groups=lambda model: [{"params": model.parameters(), "muon": True}])


def test_settings_that_no_optimizer_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three betas; Muon under a torch that has none."""
    with pytest.raises(BadRequestError, match="3 values"):
        check_settings(Settings(optimizer=OptimizerSettings(betas=(0.9, 0.9, 0.9))), WordNet(), ALONE)  # type: ignore[arg-type]
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(BadRequestError, match="newer torch"):
        check_settings(Settings(optimizer=OptimizerSettings(name="muon")), WordNet(), ALONE)


def test_sharded_muon_learns_as_a_whole_one(tmp_path: Path) -> None:
    """Over two processes by FSDP2, and in this one: the same losses up to rounding."""
    settings = ("optimizer.name=muon", "optimizer.learning_rate=0.01", "epochs=3")
    script = str(Path(__file__).with_name("divided_run.py"))
    ended = harness.run_script(script, str(tmp_path / "two"), "3", "compute.fully_shard=true", *settings, processes=2)
    assert ended.code == 0, ended.err
    base = Settings(batch_size=16, micro_batch=8, curves=False, onnx=False)
    recipe = Recipe(settings=apply_overrides(base, settings), build=lambda _: divided_run.build(3))
    run_recipe("digits", recipe, read_contract({}, output_dir=tmp_path / "one"), StopFlag())
    two, one = (
        [row["val_loss"] for row in harness.read_rows(tmp_path / name) if "val_loss" in row] for name in ("two", "one")
    )
    assert two == pytest.approx(one, rel=1e-3)
    assert one[-1] < 0.5 * one[0]
