"""The variables that tell a command about the run's machines, in the words of torchrun and SkyPilot.

torchrun takes each of its options from a variable PET_OPTION, unless the command line has it (torch 2.13,
torch/distributed/argparse_util.py and run.py), so that `torchrun train.py` is enough. SkyPilot's names:
docs.skypilot.co/en/latest/running-jobs/environment-variables.html, read in November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base.config import TaskContext
from .group import Group, group_of
from .interface import interface_to

_ALONE = "127.0.0.1"


def node_contract(context: TaskContext) -> dict[str, str]:
    """Return the variables that a job can't override."""
    return {
        "KEDGE_NODE_RANK": str(context.machine.rank),
        "KEDGE_NUM_NODES": str(max(1, len(context.run.addresses))),
    }


def id_of(run: str, key: str) -> str:
    """Return a task's id, which no other task or mode of a run has: the same on all machines and in all attempts."""
    return "-".join((run, *filter(None, key.split("/"))))


def suggest_nodes(context: TaskContext, job: Mapping[str, str], gpus: int, port: int) -> dict[str, str]:
    """Return variables that apply unless the job sets them itself.

    Args:
        context: the task.
        job: the environment with the job's own variables; some of the others follow from them.
        gpus: how many the task has on this machine.
        port: the task's port.
    """
    addresses = context.run.addresses or (_ALONE,)
    found = {
        "SKYPILOT_NODE_IPS": "\n".join(addresses),
        "SKYPILOT_NODE_RANK": str(context.machine.rank),
        "SKYPILOT_NUM_NODES": str(len(addresses)),
        "SKYPILOT_NUM_GPUS_PER_NODE": str(gpus),
        "SKYPILOT_TASK_ID": id_of(context.run.run, context.task.key),
    }
    if group := group_of(context):
        address = job.get("MASTER_ADDR") or group.addresses[0]
        found |= _rendezvous(group, address, job.get("MASTER_PORT") or str(port)) | _interfaces(group)
    return found


def _rendezvous(group: Group, address: str, port: str) -> dict[str, str]:
    number = f"{group.least}:{group.most}" if group.is_elastic else str(group.size)
    found = {
        "MASTER_ADDR": address,
        "NODE_RANK": str(group.rank),
        "NNODES": number,
        "PET_NNODES": number,
        "PET_NODE_RANK": str(group.rank),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_LOCAL_ADDR": group.addresses[group.rank],
        "PET_RDZV_ID": id_of(group.run, group.task),
    }
    if group.is_elastic:
        found["PET_RDZV_BACKEND"] = "c10d"
        found["PET_RDZV_ENDPOINT"] = f"{address}:{port}"
        # A lost machine makes the workers of the others fail, which torchrun doesn't tell from a failure of their own.
        found["PET_MAX_RESTARTS"] = str(max(1, group.size - group.least))
        # torchrun would give the workers of each round the same store, in which they find addresses of the round before
        # (torch 2.13, torch/distributed/elastic/rendezvous/dynamic_rendezvous.py and torch/distributed/rendezvous.py).
        found["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        found["PET_RDZV_CONF"] = f"is_host={int(group.rank == 0)}"
    return found


def _interfaces(group: Group) -> dict[str, str]:
    """Name the interface to the other machines; NCCL, and RCCL with the same variable, might choose another one."""
    name = interface_to(group.addresses[0 if group.rank else 1])
    # With `=`, NCCL doesn't take it for a prefix (docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html).
    return {"NCCL_SOCKET_IFNAME": f"={name}", "GLOO_SOCKET_IFNAME": name} if name else {}
