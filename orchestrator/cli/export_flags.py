"""The flags of `export` that are its own, or mean something else there than for a launch."""

from __future__ import annotations

from orchestrator.cli.flags import Completes, Flag

EXPORT_FLAGS = (
    Flag("to", "SCHEDULER", {"export": "batch, sagemaker or slurm"}, choices=("batch", "sagemaker", "slurm")),
    Flag(
        "instance-type",
        "TYPE",
        {"export": "AWS's name for a type of machine, such as g5.12xlarge"},
        overrides="resources.instance_type",
    ),
    Flag("num-nodes", "N", {"export": "how many machines, each with these resources"}, overrides="num_nodes"),
    Flag("spot", "", {"export": "at the spot price (batch, sagemaker)"}, overrides="resources.use_spot"),
    Flag("ttl", "TIME", {"export": "the deadline, which becomes the time limit; 90m or 4h"}, overrides="deadline"),
    Flag(
        "output",
        "FOLDER",
        {"export": "the folder to write to; export/JOB-MODE-SCHEDULER by default"},
        completes=Completes.FILES,
    ),
    Flag("force", "", {"export": "write over the files of an earlier export"}),
)
