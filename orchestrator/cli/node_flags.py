"""The flags of commands that act on one machine, or on one task of it: rows of the table in flag_table.py."""

from __future__ import annotations

from orchestrator.cli.flags import Completes, Flag

NODE_FLAGS = (
    Flag(
        "task",
        "TASK",
        {
            "attach": "the task, if the run has several",
            "exec": "in the working folder of this task, with its variables and GPUs",
        },
        completes=Completes.TASKS,
    ),
    Flag(
        "node",
        "N",
        {
            "attach ssh": "the machine, if the run has several, from 0; by default node 0, the head",
            "exec": "on this machine, if the run has several, from 0; by default node 0, the head",
            "logs": "only of this machine, if the run has several, from 0",
        },
    ),
    Flag("all-nodes", "", {"exec": "on all machines of the run at once, with the node before each line"}),
)
