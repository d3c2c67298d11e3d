"""What a new run starts from: nothing, weights, or a checkpoint that it goes on from."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFrom:
    """The command line's `--init` or `--from`. A run that has a checkpoint already goes on from that.

    Both only where checkpoints leave out weights that aren't trained, which `--init` supplies then.

    `init` is a file of weights or `hf:OWNER/NAME[/FILE][@REVISION]`; the run begins at step 0 with them. `key` says
    where the weights are in a file, as KEY/KEY. Without `strict`, only the weights that fit are loaded.
    `checkpoint` is a file or folder, ours or another trainer's, whose training goes on; `epochs_done` says after how
    many epochs a foreign one was saved.
    """

    init: str | None = None
    key: str | None = None
    strict: bool = True
    checkpoint: Path | None = None
    epochs_done: int | None = None
