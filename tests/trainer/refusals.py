"""What a user reads when something is refused."""

from collections.abc import Callable

import pytest

from trainer.base.errors import TrainerError


def text_of(act: Callable[[], object]) -> str:
    """Return the whole text of the error that a call raises: what, why, fix."""
    with pytest.raises(TrainerError) as refused:
        act()
    return str(refused.value)
