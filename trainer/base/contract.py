"""The run contract: what environment variables tell the trainer about this run. All of them are optional.

The orchestrator uses the same names by agreement (design, "The run contract"), not by import.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainer.base.errors import BadRequestError
from trainer.base.hub import HubAccess

MACHINE_RESULTS = "results"
"""The folder on a machine that becomes the run's folder on the laptop."""
LAPTOP_RESULTS = "kedge-results"
"""The folder on the user's laptop into which kedge copies each run's results, below the run's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KaggleAccess:
    """Kaggle's address (empty: the public one), and a token, or a user's name and key, which the repr leaves out."""

    token: str = field(default="", repr=False)
    username: str = ""
    key: str = field(default="", repr=False)
    endpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContract:
    """Where this run's files are, when it has to stop, and which of its processes this is.

    `deadline_at` is in Unix seconds, and `deadline_file` has it as it is now: it may be moved. `expected_life_hours` is
    the machine's mean time to failure. `rank` counts over all machines, `local_rank` on this one. `fetched`: kedge
    copies the output folder to the user's laptop. `task_id` names the tracker's run: no other task or mode has it.
    """

    run_id: str | None
    task_id: str | None = None
    output_dir: Path
    checkpoint_dir: Path
    deadline_at: float | None
    notice_file: Path | None
    gpus_per_node: int | None
    expected_life_hours: float | None
    rank: int
    local_rank: int
    world_size: int
    deadline_file: Path | None = None
    hub: HubAccess = field(default_factory=HubAccess)
    kaggle: KaggleAccess = field(default_factory=KaggleAccess)
    fetched: bool = False

    def path_for_user(self, path: Path) -> Path:
        """Return where the user finds an output: on the laptop if kedge fetches it, because this machine is deleted."""
        if self.fetched and self.run_id:
            return Path(LAPTOP_RESULTS, self.run_id, self._place(), path.relative_to(self.output_dir))
        return path

    def _place(self) -> Path:
        """Return the output folder's place in the run's results, which is another one for each task and mode."""
        parts = self.output_dir.parts
        after = parts[::-1].index(MACHINE_RESULTS) if MACHINE_RESULTS in parts else 1
        return Path(*parts[len(parts) - after :])


def read_contract(
    environ: Mapping[str, str], *, output_dir: Path | None = None, checkpoint_dir: Path | None = None
) -> RunContract:
    """Read the KEDGE_ variables and torchrun's; folders given as arguments take precedence.

    Raises:
        BadRequestError: a variable that must be a number isn't one.
    """
    output = output_dir or Path(environ.get("KEDGE_OUTPUT_DIR") or "output")
    checkpoints = checkpoint_dir or Path(environ.get("KEDGE_CHECKPOINT_DIR") or output / "checkpoints")
    notice = environ.get("KEDGE_NOTICE_FILE")
    deadline_file = environ.get("KEDGE_DEADLINE_FILE")
    deadline_at = _number(environ, "KEDGE_DEADLINE")
    gpus = _number(environ, "KEDGE_GPUS_PER_NODE")
    return RunContract(
        run_id=environ.get("KEDGE_RUN_ID"),
        task_id=environ.get("KEDGE_TASK_ID") or environ.get("KEDGE_RUN_ID"),
        output_dir=output,
        checkpoint_dir=checkpoints,
        deadline_at=deadline_at,
        deadline_file=Path(deadline_file) if deadline_file else None,
        notice_file=Path(notice) if notice else None,
        gpus_per_node=None if gpus is None else int(gpus),
        expected_life_hours=_number(environ, "KEDGE_EXPECTED_LIFE_HOURS"),
        rank=int(_number(environ, "RANK") or 0),
        local_rank=int(_number(environ, "LOCAL_RANK") or 0),
        world_size=int(_number(environ, "WORLD_SIZE") or 1),
        hub=HubAccess(token=environ.get("HF_TOKEN"), endpoint=environ.get("HF_ENDPOINT")),
        kaggle=KaggleAccess(
            token=environ.get("KAGGLE_API_TOKEN", ""),
            username=environ.get("KAGGLE_USERNAME", ""),
            key=environ.get("KAGGLE_KEY", ""),
            endpoint=environ.get("KAGGLE_API_ENDPOINT", ""),
        ),
        fetched=output_dir is None and "KEDGE_OUTPUT_DIR" in environ,
    )


def _number(environ: Mapping[str, str], name: str) -> float | None:
    text = environ.get(name)
    if not text:
        return None
    try:
        return float(text)
    except ValueError as err:
        raise BadRequestError(
            f"{name}={text} is not a number",
            why=f"{name} is read as a number",
            fix=f"unset {name}, or set it to a number",
        ) from err
