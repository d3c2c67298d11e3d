"""Uploads to the object store what a machine needs to start by itself."""

from __future__ import annotations

from orchestrator.core.actions import CreateMachine, StageCode, StageData, StageSecrets
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import CLOUD_ROOT
from orchestrator.core.protocol.wire import MIRRORED, TORCH_WHEEL, BootOrder, DataSource
from orchestrator.core.transfers import Progress, SecretOrder, StagedCode
from orchestrator.engine.steps.run_config import read_secrets, run_config, without_secrets
from orchestrator.engine.world import World


class Staging:
    """Stages for one plan: data first, because the configuration that is staged with the code names the data."""

    def __init__(self, spec: LaunchSpec, world: World, moved: Progress) -> None:
        self._spec = spec
        self._world = world
        self._moved = moved
        self._code: StagedCode | None = None
        self._start_sha256 = ""
        self._secrets_url = ""
        self._data: list[DataSource] = []

    def boot_order(self, action: CreateMachine) -> BootOrder:
        """Return the order for a machine that starts by itself with what was staged."""
        return BootOrder(
            code=self._code.hash if self._code else "",
            code_sha256=self._code.sha256 if self._code else "",
            start_sha256=self._start_sha256 if action.starts else "",
            torch_wheel=dict(self._spec.job.envs).get(TORCH_WHEEL, ""),
            secrets=self._spec.from_shell if action.starts else (),
            secrets_url=self._secrets_url if action.starts else "",
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
        config = run_config(self._spec, action.gpus, self._world.environ, unit, staged=self._data, done=action.done)
        # The secrets come to the machine in another way: others may be able to read the store.
        self._start_sha256 = stage.put_start(self._spec.run_id, without_secrets(config))
        return self._code.hash[:12] if self._code else ""

    def put_secrets(self, action: StageSecrets) -> str:
        """Store the secrets for the machine, and return how many there are.

        Raises:
            BadRequestError: a variable isn't set, or can't be stored.
            KedgeError: the provider refuses, or has no place for secrets.
        """
        store = self._world.secret_store
        if store is None:
            raise KedgeError(f"{self._world.provider.name} has no place for the secrets of machines")
        order = SecretOrder(
            run_id=self._spec.run_id,
            machine_id=action.machine_id,
            values=read_secrets(action.names, self._world.environ),
            tags=self._spec.resources.site.tags,
        )
        self._secrets_url = store.put(order)
        return f"{len(order.values)} stored"

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
