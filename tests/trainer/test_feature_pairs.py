"""A sample of the pairs of features that tests/trainer/gpu tries on a GPU, here on the CPU; `make anew` tries all."""

import os
import random
from pathlib import Path

import pytest

from tests.support.box_cache import ALL
from tests.trainer.gpu.checks import check_case
from tests.trainer.gpu.features import FEATURES, Outcome, describe, list_cases, train

SEED = 14


def sample_cases() -> list[frozenset[str]]:
    """Return pairs, drawn with a seed, that have every feature of a CPU at least once."""
    if os.environ.get(ALL):
        return list_cases(has_gpu=False)
    pairs = [case for case in list_cases(has_gpu=False) if len(case) == 2]
    random.Random(SEED).shuffle(pairs)
    chosen: list[frozenset[str]] = []
    for pair in pairs:
        if not pair & frozenset().union(*chosen):
            chosen.append(pair)
    left = {name for name, feature in FEATURES.items() if feature.has_cpu} - frozenset().union(*chosen)
    chosen += [next(pair for pair in pairs if name in pair) for name in sorted(left)]
    return chosen


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The run without any feature."""
    return train((), tmp_path_factory.mktemp("plain") / "output")


@pytest.mark.parametrize("case", sample_cases(), ids=describe)
def test_features_train_and_resume_together(
    case: frozenset[str], plain: Outcome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Losses like the plain run's, checkpoints written under the next steps, a resume to the bit."""
    check_case(case, plain, tmp_path, capsys)


def test_cases_are_each_feature_and_each_pair_once() -> None:
    """Thirteen features, and all pairs but the three that exclude each other."""
    cases = list_cases()
    assert len(cases) == len(set(cases)) == 13 + 13 * 12 // 2 - 3
    assert frozenset({"fp16", "bf16"}) not in cases
