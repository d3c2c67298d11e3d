"""Packs the job's code for an export: the files that a launch would send."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from orchestrator.adapters.export.model import PLAIN
from orchestrator.adapters.host.files import open_to_write
from orchestrator.adapters.jobfile.assembly.bundled import trainer_packages
from orchestrator.adapters.sync.code.entries import LINK
from orchestrator.adapters.sync.code.tree import CodeTree, read_tree
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import Job
from orchestrator.core.ports import Clock

CODE = "code.tar.gz"


def read_code(job: Job, state: Path, clock: Clock) -> CodeTree | None:
    """Read the tree of a job's code; None for a job without code.

    Raises:
        BadRequestError: it has something that can't be sent.
    """
    if job.workdir is None and not job.bundled_trainer:
        return None
    workdir = Path(job.workdir) if job.workdir else None
    extras = trainer_packages(workdir) if job.bundled_trainer else {}
    return read_tree(workdir, extras, state / "digests", clock)


def write_code(tree: CodeTree, path: Path) -> None:
    """Write a tree as a .tar.gz: the same files give the same bytes, except for the compression's own version.

    Raises:
        KedgeError: a file has changed since it was listed, or can't be read.
    """
    with open_to_write(path) as out, tarfile.open(fileobj=out, mode="w:gz") as tar:
        # A container's user, who is another one, reads it.
        os.fchmod(out.fileno(), PLAIN)
        for entry in tree.manifest.entries:
            member = tarfile.TarInfo(entry.path)
            member.mode = entry.mode
            if entry.type == LINK:
                member.type, member.linkname = tarfile.SYMTYPE, entry.link
                tar.addfile(member)
                continue
            try:
                with open(tree.sources[entry.path], "rb") as file:  # noqa: PTH123 - a path with any bytes
                    member.size = os.fstat(file.fileno()).st_size
                    tar.addfile(member, file)
            except OSError as err:
                raise KedgeError(
                    f"{tree.sources[entry.path]} can't be packed",
                    why=err.strerror or str(err),
                    fix="stop what writes there, and export again with --force",
                ) from err
