"""Each feature alone, and each pair of features, on one GPU."""

from pathlib import Path

import pytest

from tests.trainer.gpu.checks import check_case
from tests.trainer.gpu.features import Outcome, describe, list_cases


@pytest.mark.parametrize("case", list_cases(), ids=describe)
def test_features_train_and_resume_together(
    case: frozenset[str], plain: Outcome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Losses like the plain run's, checkpoints written under the next steps, a resume that ends the same."""
    check_case(case, plain, tmp_path, capsys)
