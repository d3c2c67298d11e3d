"""What a fetch brings home, and where to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from orchestrator.core.actions import FetchResults
from orchestrator.core.job import LaunchSpec
from orchestrator.core.modes import folders_of, output_patterns
from orchestrator.core.protocol.choice import EVERYTHING, Choice, describe_amount
from orchestrator.core.protocol.results import ResultFile
from orchestrator.core.protocol.tree import is_below
from orchestrator.core.transfers import Progress

NO_FOLDERS: Mapping[str, str] = MappingProxyType({})
"""All results."""


def _tell_nobody(_text: str) -> None:
    """Ignore a remark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is fetched, and where to.

    Attributes:
        destination: on the laptop.
        progress: called now and then.
        folders: only these folders of the results, each of the task that it belongs to; empty for all.
        choice: which of their files.
        tell: told how much will be fetched, if something isn't.
    """

    destination: str
    progress: Progress
    folders: Mapping[str, str] = field(default_factory=lambda: NO_FOLDERS)
    choice: Choice = EVERYTHING
    tell: Callable[[str], None] = _tell_nobody

    @property
    def leaves_steps(self) -> bool:
        """Whether the object store decides what is fetched."""
        return self.choice.leaves_steps and not self.choice.only

    def leaving(self, stored: Iterable[ResultFile]) -> Wanted:
        """Return what is fetched of a run whose older checkpoints are left if the object store has them."""
        kept = frozenset((file.path, file.sha256) for file in stored)
        return replace(self, choice=replace(self.choice, stored=kept))

    def below_folders(self, files: Iterable[ResultFile]) -> list[ResultFile]:
        """Return the files in these folders."""
        return [file for file in files if is_below(file.path, self.folders.values())]

    def choose(self, files: Sequence[ResultFile]) -> list[ResultFile]:
        """Return those of the folders' files that are fetched, and say how much is, if it isn't all.

        Raises:
            BadRequestError: none of them is.
        """
        chosen = self.choice.of(files)
        self.choice.require_some(files, chosen)
        if rest := self.describe_rest(files, chosen):
            self.tell(f"to fetch: {describe_amount(chosen)}{rest}")
        return chosen

    def describe_rest(self, files: Sequence[ResultFile], chosen: Sequence[ResultFile]) -> str:
        """Say what isn't fetched, after a semicolon; empty if all is."""
        rest = self.choice.describe_rest(files, chosen)
        return f"; {rest}" if rest else ""


def wanted_by(spec: LaunchSpec, action: FetchResults, progress: Progress, tell: Callable[[str], None]) -> Wanted:
    """Return what an action fetches of a run."""
    folders = folders_of(spec)
    named = {name: folders[name].key for name in action.tasks} if not action.folders else {}
    return Wanted(
        destination=action.destination,
        progress=progress,
        folders={**dict(zip(action.folders, action.folders, strict=True)), **named},
        choice=Choice(only=action.only, outputs=output_patterns(spec), leaves_steps=spec.job.bundled_trainer),
        tell=tell,
    )
