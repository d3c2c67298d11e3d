"""What is staged in a bucket holds no value of a secret, of no mode, and a machine gives each mode its own ones."""

from __future__ import annotations

import json

import msgspec

from orchestrator.agent.base.parse import parse_run_config
from orchestrator.agent.boot.boot import with_secrets
from orchestrator.core.protocol.wire import RunConfig, TaskConfig
from orchestrator.engine.steps.run_config import without_secrets

TASK = TaskConfig(name="", command="true", supervisor="tmux", restarts=0, restart_after=0, grace=0)


def config(mode: str, sequence: int, secrets: dict[str, str], *then: RunConfig) -> RunConfig:
    return RunConfig(
        run="r", job="j", mode=mode, setup="", tasks=(TASK,), sequence=sequence, secrets=secrets, then=then
    )


def test_modes_get_the_secrets_that_they_name_and_no_others() -> None:
    """Names are staged, so that the machine knows whose they are."""
    whole = config("validate", 0, {"TOKEN": "quiet"}, config("fast", 1, {"KEY": "l0ud"}), config("full", 2, {}))
    staged = msgspec.json.encode(without_secrets(whole))
    assert (b"quiet" in staged, b"l0ud" in staged) == (False, False)
    read = with_secrets(parse_run_config(staged), {"TOKEN": "quiet", "KEY": "l0ud"})
    assert [dict(each.secrets) for each in (read, *read.then)] == [{"TOKEN": "quiet"}, {"KEY": "l0ud"}, {}]


def test_a_run_with_one_mode_gets_all() -> None:
    """As before: its staged configuration doesn't name them."""
    staged = msgspec.json.encode(without_secrets(config("", 0, {"TOKEN": "quiet"})))
    assert json.loads(staged)["secrets"] == {}
    assert dict(with_secrets(parse_run_config(staged), {"TOKEN": "quiet"}).secrets) == {"TOKEN": "quiet"}
