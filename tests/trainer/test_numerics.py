"""How exactly a device computes: TF32, deterministic algorithms, the search for fast ones."""

import os
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from tests.trainer.learners import FAST, FEATURES, PlainNet, make_learner_of, random_batches
from trainer.base.config import ComputeSettings, Settings
from trainer.base.errors import BadRequestError, TrainerError
from trainer.base.recipe import Moment
from trainer.group.distributed import ALONE
from trainer.step.assembly import check_settings


@pytest.fixture(autouse=True)
def _restored_numerics(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch keeps these per process."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    monkeypatch.setenv("HIPBLASLT_ALLOW_TF32", "")
    monkeypatch.delenv("HIPBLASLT_ALLOW_TF32")
    yield
    make_learner_of()
    torch.use_deterministic_algorithms(mode=False)
    torch.backends.cudnn.deterministic = False


def tf32_flags() -> set[bool]:
    """Return whether TF32 is on for products and convolutions, by each of torch's settings."""
    flags = {torch.get_float32_matmul_precision() != "highest"}
    flags |= {torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32}
    for part in ("conv", "rnn"):
        if hasattr(torch.backends.cudnn, part):
            flags.add(getattr(torch.backends.cudnn, part).fp32_precision == "tf32")
    return flags


def test_tf32_is_off_unless_it_is_set() -> None:
    """Convolutions too, where torch's own default has it on; no setting of torch raises afterwards."""
    for value, expected in (("off", {False}), ("on", {True}), ("off", {False})):
        make_learner_of([f"compute.tf32={value}"])
        assert tf32_flags() == expected
        with torch.backends.cudnn.flags(enabled=False):
            assert tf32_flags() >= expected


def test_deterministic_run_sets_all_that_torch_has() -> None:
    """Algorithms, cuDNN, cuBLAS's workspaces; a workspace that the user has chosen stays."""
    make_learner_of(["compute.deterministic=on"])
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
    make_learner_of(["compute.deterministic=on"])
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_search_for_fast_algorithms_is_off_unless_it_is_set() -> None:
    """Whatever was set before."""
    for value, expected in (("on", True), ("off", False)):
        make_learner_of([f"compute.benchmark={value}"])
        assert torch.backends.cudnn.benchmark is expected


def test_deterministic_search_for_fast_algorithms_is_refused() -> None:
    """The two exclude each other."""
    compute = ComputeSettings(deterministic=True, benchmark=True)
    with pytest.raises(BadRequestError, match="exclude each other"):
        check_settings(Settings(compute=compute), PlainNet(), ALONE)


class Unordered(PlainNet):
    """Uses an operation that has no deterministic implementation."""

    def forward(self, values_BF: torch.Tensor) -> torch.Tensor:
        scattered = torch.zeros(FEATURES).put_(torch.zeros(2, dtype=torch.int64), torch.ones(2))
        return super().forward(values_BF + scattered)


def test_operation_without_a_deterministic_implementation_is_named_with_a_fix() -> None:
    """One error that says which operation, and what to do; without the setting it runs."""
    batch = next(random_batches())

    def step(*settings: str) -> None:
        model: nn.Module = Unordered()
        make_learner_of(settings, model=model).step(batch, rate=FAST, moment=Moment(step=0))

    step()
    with pytest.raises(TrainerError, match="is not deterministic") as caught:
        step("compute.deterministic=on")
    assert "put_" in caught.value.why
    assert "compute.deterministic=false" in caught.value.fix
