"""An object store that is opened when it is first used: naming a provider loads no SDK and asks nobody."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.core.job import DataMount
    from orchestrator.core.ports import (
        CodeSource,
        DataStage,
        Progress,
        ResultStore,
        Shipment,
        Stage,
        StagedCode,
        StagedData,
    )
    from orchestrator.core.report import ResultFile
    from orchestrator.core.tree import Arrival
    from orchestrator.core.wire import RunConfig


class LateStore:
    """Implements `core.ports.ResultStore` over one that is opened later."""

    def __init__(self, open_store: Callable[[], ResultStore]) -> None:
        self._open = open_store

    @cached_property
    def _store(self) -> ResultStore:
        return self._open()

    @property
    def url(self) -> str:
        """Where it is; what the agent is told."""
        return self._store.url

    def manifest(self, run_id: str) -> tuple[ResultFile, ...]:
        """List the results that were shipped."""
        return self._store.manifest(run_id)

    def last_shipment(self, run_id: str) -> Shipment | None:
        """Say what the agent shipped last."""
        return self._store.last_shipment(run_id)

    def read_file(self, run_id: str, path: str) -> bytes:
        """Return one shipped file."""
        return self._store.read_file(run_id, path)

    def fetch(self, run_id: str, destination: str, progress: Progress) -> Arrival:
        """Copy the shipped results into a folder, and verify them."""
        return self._store.fetch(run_id, destination, progress)

    def remove(self, run_id: str) -> None:
        """Remove all that the store holds of a run."""
        self._store.remove(run_id)


class LateStage:
    """Implements `core.ports.Stage` likewise."""

    def __init__(self, open_stage: Callable[[], Stage]) -> None:
        self._open = open_stage

    def put_code(self, run_id: str, source: CodeSource, progress: Progress) -> StagedCode:
        """Bring the code there."""
        return self._open().put_code(run_id, source, progress)

    def put_start(self, run_id: str, config: RunConfig) -> str:
        """Leave the command's configuration there, and return its SHA-256."""
        return self._open().put_start(run_id, config)


class LateData:
    """Implements `core.ports.DataStage` likewise."""

    def __init__(self, open_data: Callable[[], DataStage]) -> None:
        self._open = open_data

    def put_data(self, mount: DataMount, progress: Progress, *, delete: bool = False) -> StagedData:
        """Bring the copy of a mount's source to the source's state."""
        return self._open().put_data(mount, progress, delete=delete)

    def remove_data(self, mount: DataMount) -> None:
        """Remove the copy of a mount's source."""
        self._open().remove_data(mount)
