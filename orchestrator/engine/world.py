"""Everything that the engine touches, as one value: the ports of one run's world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.job import Job
from orchestrator.core.ledger import Ledger
from orchestrator.core.ports import Clock, CodeSource, Connector, DataMover, DataStage, Provider, ResultStore, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The ports that the engine works through; `app` makes it, tests make their own.

    Attributes:
        store: where this provider's machines ship their results; None for nowhere.
        stage: where its machines find what they need to start by themselves; None where they can't.
        data_stage: where its machines find the laptop's data; None where that goes to them directly.
        code: makes the source of a job's code; None for a job that sends none.
        authorized_key: the public half of the key that opens kedge's machines.
        agent_archive: packs the agent.
        render_unit: renders a job's systemd unit for a machine's root folder.
        environ: where the values of secrets are taken from.
        store_caveats: what the store exposes to a run's machine beyond that run.
    """

    clock: Clock
    ledger: Ledger
    provider: Provider
    connector: Connector
    data: DataMover
    store: ResultStore | None
    stage: Stage | None
    data_stage: DataStage | None = None
    code: Callable[[Job], CodeSource | None]
    authorized_key: str
    agent_archive: Callable[[], bytes]
    render_unit: Callable[[Job, str], str]
    environ: Mapping[str, str]
    store_caveats: tuple[str, ...] = ()

    def has_results(self, run_id: str) -> bool:
        """Tell whether the object store holds anything of a run's, even if nobody can read the list of it.

        Raises:
            UnreachableError: the store doesn't answer.
        """
        try:
            return self.store is not None and bool(self.store.manifest(run_id))
        except UnreachableError:
            raise
        except KedgeError:
            return True
