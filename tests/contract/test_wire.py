"""Laptop and agent agree on the wire format, though neither imports the other."""

from __future__ import annotations

import ast
import dataclasses
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orchestrator.adapters.incoming.results_folders import RESULTS
from orchestrator.adapters.jobfile.values.names import parse_torch_wheel
from orchestrator.agent.base import parse as agent_parse
from orchestrator.agent.base import wire as agent
from orchestrator.agent.base.errors import RequestError
from orchestrator.agent.base.record import LATEST, Record, key_of, to_json
from orchestrator.agent.gpu.accelerators import Accelerators
from orchestrator.agent.python.wheels import choose_index
from orchestrator.agent.results import described
from orchestrator.core.errors import BadRequestError
from orchestrator.core.protocol import decoding, readiness, report, results, sample, stream, wire
from orchestrator.core.protocol.report import RunState
from trainer.base.contract import LAPTOP_RESULTS

PAIRS = [
    (wire.DataSource, agent.DataSource),
    (wire.TaskConfig, agent.TaskConfig),
    (wire.RunConfig, agent.RunConfig),
    (wire.MachineConfig, agent.MachineConfig),
    (wire.BootOrder, agent.BootOrder),
    (readiness.BootPhase, agent.BootPhase),
    (readiness.Readiness, agent.Readiness),
    (report.Command, agent.Command),
    (sample.Gpu, agent.Gpu),
    (sample.Sample, agent.Sample),
    (report.Checkpoint, agent.Checkpoint),
    (report.UploadState, agent.UploadState),
    (report.FreshStart, agent.FreshStart),
    (report.TaskReport, agent.TaskReport),
    (report.ModeReport, agent.ModeReport),
    (report.MachineReport, agent.MachineReport),
    (stream.FollowEvent, agent.FollowEvent),
    (results.ResultFile, described.ResultFile),
    (results.LeftFile, described.LeftFile),
    (results.LeftBehind, described.LeftBehind),
]
CONFIG = wire.RunConfig(
    run="digits-1a2b",
    job="digits",
    mode="fast",
    setup="pip install .",
    tasks=(
        wire.TaskConfig(
            name="voxel",
            command="python train.py",
            supervisor="tmux",
            restarts=3,
            restart_after=10.0,
            grace=60,
            resume="python train.py --resume",
            unit="[Service]",
            envs={"SEED": "1"},
            outputs=("runs/",),
            checkpoints="ckpt",
            gpus=(7,),
            cpus=2,
            after="pcdiff",
            port=29600,
        ),
        wire.TaskConfig(name="pcdiff", command="true", supervisor="tmux", restarts=0, restart_after=0, grace=0),
    ),
    on_failure="stop-all",
    sequence=1,
    continues="",
    then=(
        wire.RunConfig(
            run="digits-1a2b",
            job="digits",
            mode="full",
            setup="",
            tasks=(wire.TaskConfig(name="", command="true", supervisor="tmux", restarts=0, restart_after=0, grace=0),),
            sequence=2,
            continues="2-fast",
            secrets={"TOKEN": "ünï"},
        ),
    ),
    done=("pcdiff",),
    envs={"EPOCHS": "3"},
    secrets={"TOKEN": "ünï"},
    data=("data/digits", "data/faces"),
    gpus_per_node=8,
    python_path=("src",),
    python="/home/me/.venv/bin/python",
    sources=(wire.DataSource(source="hf://datasets/me/faces@v1", target="data/faces", index="ab" * 32),),
    left_behind=5_000_000,
    setup_inputs=("requirements.txt", "tools/"),
    addresses=("10.0.0.1", "10.0.0.2"),
    elastic=(1, 2),
    modes_port=29450,
)
MACHINE = wire.MachineConfig(
    machine="digits-1a2b-m1",
    run="digits-1a2b",
    provider="local",
    root="/home/me/kedge",
    created=1_700_000_000.5,
    deadline_at=1_700_003_600,
    usd_per_hour="1.99",
    store_url="file:///store",
    end_command=("poweroff",),
    sockets="/tmp/kg",
    path=("/opt/bin",),
    metadata="aws",
)
COMMAND = agent.Command(
    state=agent.RESTARTING, attempt=2, exit_code=137, reason="exit code 137", since=1.5, started=1.0, supervisor="tmux"
)
REPORT = agent.MachineReport(
    machine="m",
    run="r",
    now=3.5,
    created=1.0,
    deadline_at=9.0,
    usd_per_hour="1.99",
    heartbeat=3.0,
    code="abc",
    log_bytes=7,
    disk_free_bytes=1,
    disk_total_bytes=2,
    zstd=True,
    command=COMMAND,
    progress={"step": 3, "metrics": {"loss": 0.5}},
    sample=agent.Sample(3.0, 50.0, 1.0, 2.0, (agent.Gpu(0, "MI300X", 88.0, 1.0, 2.0, None, 500.0),)),
    checkpoint=agent.Checkpoint("last.pt", 5, 2.0),
    upload=agent.UploadState(2.5, "last.pt", ""),
    notice=8.5,
    advanced=3.25,
    anew=agent.FreshStart("ckpt.pt", "ckpt.pt", 50, 650, 1000, 1000, "ckpt.pt"),
    tasks={"voxel": agent.TaskReport(COMMAND, 7, {"step": 3}, agent.Checkpoint("last.pt", 5, 2.0), 3.25)},
    sequence=1,
    mode="fast",
    earlier=(agent.ModeReport(0, "validate", COMMAND),),
)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_sides_have_the_same_fields_with_the_same_defaults(ours: Any, theirs: Any) -> None:
    """Names, order and defaults are equal."""
    assert _fields(ours) == _fields(theirs)


def test_trainer_and_laptop_agree_on_the_results_folder() -> None:
    """The trainer's last output names the folder on the laptop."""
    assert LAPTOP_RESULTS == RESULTS


def test_both_sides_have_the_same_states() -> None:
    """And agree on which states are live and which are over."""
    assert {state.value for state in RunState} == {agent.IDLE, *agent.LIVE, *agent.OVER}
    assert {state.value for state in RunState if state.is_live} == agent.LIVE
    assert {state.value for state in RunState if state.is_over} == agent.OVER
    assert report.SPOT_NOTICE == agent.SPOT_NOTICE
    assert report.DEADLINE == agent.DEADLINE
    assert (decoding.LATEST, decoding.DEPTH) == (LATEST, agent.DEPTH)


def test_both_sides_use_the_same_names_for_the_burn_in_and_its_torch() -> None:
    """The boot phase that makes kedge give a machine up, and the variable with which a job chooses its torch."""
    assert readiness.BURN_IN == agent.BURN_IN
    assert wire.TORCH_WHEEL == agent.TORCH_WHEEL


def test_both_sides_use_the_same_name_for_the_secrets_among_the_supplies() -> None:
    """A file for the job's user."""
    assert wire.RUN_SECRETS == agent.RUN_SECRETS


def test_a_plan_names_the_limits_of_the_agent() -> None:
    """How much the agent keeps of files that a command writes outside its outputs, by default."""
    assert wire.LEFT_BEHIND_BYTES == agent.LEFT_BEHIND_BYTES
    assert wire.LEFT_BEHIND_OVER_SSH_BYTES == agent.LEFT_BEHIND_OVER_SSH_BYTES


@pytest.mark.parametrize(
    "wheel", ["rocm6.4", "cpu", "https://wheels.example/rocm", "", "rocm 6.4", "../x", "ROCM", "-e"]
)
def test_both_sides_accept_the_same_wheels(wheel: str) -> None:
    """The laptop refuses what the agent would refuse later, on a machine that is paid for."""

    def takes(parse: Callable[[str], str], refusal: type[Exception]) -> bool:
        try:
            parse(wheel)
        except refusal:
            return False
        return True

    ours = takes(parse_torch_wheel, BadRequestError)
    assert ours == takes(partial(choose_index, Accelerators(cuda="12.8")), RequestError)


def test_the_agent_reads_everything_that_the_laptop_sends() -> None:
    """Every field of a run's and of a machine's configuration arrives."""
    read = agent_parse.parse_run_config(msgspec.json.encode(CONFIG))
    assert _plain(CONFIG) == _plain(read)
    machine = agent_parse.build(agent.MachineConfig, json.loads(msgspec.json.encode(MACHINE)))
    assert _plain(MACHINE) == _plain(machine)
    order = wire.BootOrder(
        code="hash0001", code_sha256="ab" * 32, start_sha256="cd" * 32, gpus=8, torch_wheel="rocm6.4"
    )
    assert _plain(order) == _plain(agent_parse.build(agent.BootOrder, json.loads(msgspec.json.encode(order))))


def test_the_laptop_reads_everything_that_the_agent_prints() -> None:
    """Every field of a report arrives, alone and in a stream."""
    printed = json.dumps(to_json(REPORT)).encode()
    read = report.parse_report(printed)
    assert _plain(read) == _plain(REPORT)
    event = agent.FollowEvent(offset=12, report=REPORT)
    assert stream.parse_follow_event(json.dumps(to_json(event)).encode()) == stream.FollowEvent(offset=12, report=read)
    line = agent.FollowEvent(offset=12, line="caf\ufffd")
    assert stream.parse_follow_event(json.dumps(to_json(line)).encode()).line == "caf\ufffd"
    ready = agent.Readiness(ok=False, phases=(agent.BootPhase("code", 1.5, 2.5, ok=False, error="no code"),))
    assert _plain(readiness.parse_ready(json.dumps(to_json(ready)).encode())) == _plain(ready)
    files = json.dumps([to_json(described.ResultFile("a \n ü", 1, "ff"))])
    assert results.parse_results(files.encode()) == (results.ResultFile(path="a \n ü", bytes=1, sha256="ff"),)


def test_an_older_side_understands_a_newer_one() -> None:
    """Unknown fields are ignored, in both directions."""
    config = {**json.loads(msgspec.json.encode(CONFIG)), "new_in_2027": {"a": [1]}}
    assert agent_parse.parse_run_config(json.dumps(config).encode()).run == CONFIG.run
    printed = {**to_json(REPORT), "new_in_2027": 1}
    printed["command"]["new_in_2027"] = 1
    assert report.parse_report(json.dumps(printed).encode()).machine == "m"


def test_the_agent_needs_only_the_standard_library() -> None:
    """It imports only Python's modules and its own, with relative imports that work under another package name."""
    import sys

    folder = Path(agent.__file__).parent
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names.append(node.module or "")
            assert not [name for name in names if name.split(".")[0] not in sys.stdlib_module_names], path


def _fields(kind: Any) -> list[tuple[str, Any]]:
    """List the names of a record's fields on the wire, and their default values."""
    if issubclass(kind, msgspec.Struct):
        return [(field.encode_name, _default(field)) for field in msgspec.structs.fields(kind)]
    if issubclass(kind, Record):
        return [(key_of(name), _plain(getattr(kind, name, dataclasses.MISSING))) for name in kind.fields]
    return [(field.name, _default(field)) for field in dataclasses.fields(kind)]


def _default(field: Any) -> Any:
    is_made = field.default_factory not in (dataclasses.MISSING, msgspec.NODEFAULT)
    return _plain(field.default_factory() if is_made else field.default)


def _plain(value: Any) -> Any:
    """Convert either side's values to plain JSON values."""
    if value in (dataclasses.MISSING, msgspec.NODEFAULT):
        return "no default"
    is_agents = isinstance(value, Record)
    return json.loads(json.dumps(to_json(value) if is_agents else msgspec.to_builtins(value)))
