"""What a command is told of the run's machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.base.config import TaskContext
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.parse import build
from orchestrator.agent.base.wire import MachineConfig
from orchestrator.agent.nodes.agreement import Start, agree, parse_start
from orchestrator.agent.nodes.interface import interface_to
from orchestrator.agent.run.environment import render_environment
from tests.agent.configs import run_config

ADDRESSES = ("10.0.0.4", "10.0.0.7", "10.0.0.5")
ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth1\t0000000A\t00000000\t0001\t0\t0\t200\t0000FFFF\t0\t0\t0
eth2\t0000000A\t00000000\t0001\t0\t0\t50\t0000FFFF\t0\t0\t0
eth3\t0000000A\t00000000\t0001\t0\t0\t50\t00FFFFFF\t0\t0\t0
eth4\t0700000A\t00000000\t0201\t0\t0\t50\tFFFFFFFF\t0\t0\t0
"""


def environment(folder: Path, rank: int = 1, inherited: dict[str, str] | None = None, **run: Any) -> dict[str, str]:
    """Return the environment of a command that uses the given port, on a machine of this rank."""
    machine = build(
        MachineConfig,
        {"machine": "m", "run": "r", "provider": "do", "root": str(folder), "created": 0, "deadline": 3600}
        | {"usd_per_hour": "1", "rank": rank},
    )
    config = run_config(**{"addresses": list(ADDRESSES), "port": 29600, "gpus_per_node": 8, **run})
    context = TaskContext(Layout(folder).task(""), machine, config, config.tasks[0])
    return render_environment(inherited or {}, context, folder, "mark")


def test_a_command_on_several_machines_knows_torchruns_and_skypilots_names(tmp_path: Path) -> None:
    """Torchrun reads the PET_ names, so that it needs no options."""
    env = environment(tmp_path)
    wanted = {
        "MASTER_ADDR": "10.0.0.4",
        "MASTER_PORT": "29600",
        "NODE_RANK": "1",
        "NNODES": "3",
        "KEDGE_PORT": "29600",
        "KEDGE_NODE_RANK": "1",
        "KEDGE_NUM_NODES": "3",
        "SKYPILOT_NODE_IPS": "10.0.0.4\n10.0.0.7\n10.0.0.5",
        "SKYPILOT_NODE_RANK": "1",
        "SKYPILOT_NUM_NODES": "3",
        "SKYPILOT_NUM_GPUS_PER_NODE": "8",
        "SKYPILOT_TASK_ID": "digits-1a2b",
        "PET_NNODES": "3",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "10.0.0.4",
        "PET_MASTER_PORT": "29600",
        "PET_LOCAL_ADDR": "10.0.0.7",
        "PET_RDZV_ID": "digits-1a2b",
    }
    assert {name: env.get(name) for name in wanted} == wanted
    # With `static`, its default, the processes of the head have the first ranks: their results are the run's.
    assert "PET_RDZV_BACKEND" not in env


@pytest.mark.parametrize(("rank", "host"), [(0, "1"), (2, "0")])
def test_an_elastic_job_meets_at_the_heads_store(tmp_path: Path, rank: int, host: str) -> None:
    """The number of machines is a range, which only torchrun's c10d backend knows."""
    env = environment(tmp_path, rank, elastic=[2, 4])
    assert (env["NNODES"], env["PET_NNODES"]) == ("2:4", "2:4")
    assert (env["PET_RDZV_BACKEND"], env["PET_RDZV_ENDPOINT"]) == ("c10d", "10.0.0.4:29600")
    assert env["PET_RDZV_CONF"] == f"is_host={host}"
    assert (env["PET_MAX_RESTARTS"], env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"]) == ("1", "1")


def test_a_job_may_set_suggestions_itself_and_torchrun_follows(tmp_path: Path) -> None:
    """What is kedge's own it can't set."""
    own = {"MASTER_PORT": "4000", "NCCL_SOCKET_IFNAME": "ib0", "KEDGE_NODE_RANK": "9"}
    env = environment(tmp_path, envs=own)
    assert (env["MASTER_PORT"], env["PET_MASTER_PORT"]) == ("4000", "4000")
    assert env["NCCL_SOCKET_IFNAME"] == "ib0"
    assert env["KEDGE_NODE_RANK"] == "1"


@pytest.mark.parametrize("alone", [{"port": 0}, {"addresses": []}], ids=["a task of the head", "one machine"])
def test_a_task_of_one_machine_has_nothing_to_meet(tmp_path: Path, alone: dict[str, Any]) -> None:
    """Torchrun would wait for others; SkyPilot's variables are there."""
    env = environment(tmp_path, 0, **alone)
    assert not [name for name in env if name.startswith("PET_") or name in ("MASTER_ADDR", "NNODES", "NODE_RANK")]
    assert env["SKYPILOT_NODE_RANK"] == "0"
    assert env["KEDGE_NUM_NODES"] == env["SKYPILOT_NUM_NODES"] == ("3" if "port" in alone else "1")


def test_the_interface_is_that_of_the_route_to_the_other_machines(tmp_path: Path) -> None:
    """The most exact route counts, then the one with the lowest metric; a refused one doesn't."""
    routes = tmp_path / "route"
    routes.write_text(ROUTES)
    assert interface_to("10.0.0.7", routes) == "eth3"
    assert interface_to("10.0.9.7", routes) == "eth2"
    assert interface_to("192.0.2.1", routes) == "eth0"
    assert interface_to("127.0.0.2", routes) == "lo"
    assert interface_to("head.example", routes) == interface_to("10.0.0.7", tmp_path / "none") == ""


def test_nccl_and_gloo_use_that_interface(tmp_path: Path) -> None:
    """NCCL takes a name for a prefix, unless it begins with an equals sign."""
    env = environment(tmp_path, addresses=["127.0.0.2", "127.0.0.3"])
    assert (env["NCCL_SOCKET_IFNAME"], env["GLOO_SOCKET_IFNAME"]) == ("=lo", "lo")


def test_machines_agree_on_the_newest_checkpoint_that_all_have() -> None:
    """Those without any follow; without a common one, each takes its own, and the head decides whether to resume."""
    head = Start(can_resume=True, checkpoints=("b", "a"), versions=("1", "2"))
    other = Start(can_resume=True, checkpoints=("c", "a", "b"), versions=("3", "4", "5"), rank=1)
    both, alone = ((0, "1"), (1, "5")), ((1, "5"),)
    assert agree([head, other, Start(rank=2)]) == Start(can_resume=True, checkpoints=("b",), holders=both)
    assert agree([Start(), other._replace(checkpoints=("b",), versions=("5",))]) == Start(
        can_resume=True, checkpoints=("b",), holders=alone
    )
    assert agree(
        [Start(can_resume=True, checkpoints=("rank0",)), Start(can_resume=True, checkpoints=("rank1",))]
    ) == Start(can_resume=True)
    assert agree([Start(), Start(can_resume=True)]) == Start()
    assert parse_start({"can_resume": 1, "checkpoints": ["a", 7, "../x", "x" * 300]}) == Start(checkpoints=("a",))
