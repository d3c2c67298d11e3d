"""Uploads to the object store what a machine needs to start by itself."""

from __future__ import annotations

from orchestrator.core.actions import CreateMachine, StageCode, StageData
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import CLOUD_ROOT
from orchestrator.core.protocol.wire import MIRRORED, TORCH_WHEEL, BootOrder, DataSource
from orchestrator.core.transfers import Progress, StagedCode
from orchestrator.engine.steps.run_config import run_config
from orchestrator.engine.world import World


class Staging:
    """Stages for one plan: data first, because the configuration that is staged with the code names the data."""

    def __init__(self, spec: LaunchSpec, world: World, moved: Progress) -> None:
        self._spec = spec
        self._world = world
        self._moved = moved
        self._code: StagedCode | None = None
        self._start_sha256 = ""
        self._data: list[DataSource] = []

    def boot_order(self, action: CreateMachine) -> BootOrder:
        """Return the order for a machine that starts by itself with what was staged."""
        return BootOrder(
            code=self._code.hash if self._code else "",
            code_sha256=self._code.sha256 if self._code else "",
            start_sha256=self._start_sha256 if action.starts else "",
            torch_wheel=dict(self._spec.job.envs).get(TORCH_WHEEL, ""),
        )

    def put_code(self, action: StageCode) -> str:
        """Stage the code and the command's configuration, and return the first characters of the code's hash.

        Raises:
            KedgeError: the provider's machines don't start by themselves.
        """
        stage = self._world.stage
        if stage is None:
            raise KedgeError(f"machines at {self._world.provider.name} don't start by themselves")
        source = self._world.code_source(self._spec.job)
        if source is not None:
            self._code = stage.put_code(self._spec.run_id, source, self._moved)
        unit = self._world.render_unit(self._spec.job, CLOUD_ROOT)
        config = run_config(self._spec, action.gpus, self._world.environ, unit, staged=self._data)
        self._start_sha256 = stage.put_start(self._spec.run_id, config)
        return self._code.hash[:12] if self._code else ""

    def put_data(self, action: StageData) -> str:
        """Stage one mount's data, and return its name there.

        Raises:
            KedgeError: the provider has no object store.
        """
        stage = self._world.data_stage
        if stage is None:
            raise KedgeError(f"machines at {self._world.provider.name} have no object store to take data from")
        staged = stage.put_data(action.mount, self._moved)
        source = DataSource(source=f"{MIRRORED}{staged.name}", target=action.mount.target, index=staged.index)
        self._data.append(source)
        return staged.name
