"""moto's AWS server in the tests' own process, so that tests can inspect its state."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.cloudbox.aws.rules import budgets, change_sets
from tests.cloudbox.aws.strict_moto import serving_moto
from tests.cloudbox.aws.wire.moto_state import keep_first_regions

REGION = "eu-west-1"
ACCOUNT_ID = "123456789012"


@contextmanager
def serving() -> Iterator[str]:
    """Serve AWS on a free port; yield the endpoint's URL."""
    with pytest.MonkeyPatch.context() as patch:
        change_sets.complete(patch.setattr)
        keep_first_regions()
        budgets.complete(partial(patch.setattr, raising=False))
        with serving_moto() as endpoint:
            yield endpoint


def environment(endpoint: str) -> dict[str, str]:
    """Return the environment variables that point a user's shell to this AWS only."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def reset(endpoint: str) -> None:
    """Delete everything that was created."""
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST"), timeout=60).close()
