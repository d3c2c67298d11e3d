"""The ports that the engine works through for one provider, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.job import Job
from orchestrator.core.ledger import Ledger
from orchestrator.core.ports import Clock, Connector, PollUntil, Provider
from orchestrator.core.transfers import CodeSource, DataMover, DataStage, ResultStore, SecretStore, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The ports that the engine works through; `app` makes it, tests make their own.

    Attributes:
        poll_until: waits for a condition, through the clock.
        store: where this provider's machines upload their results; None if they don't.
        stage: where its machines find what they need to start by themselves; None if they can't.
        data_stage: where its machines find the laptop's data; None if it is sent to them directly.
        secret_store: where its machines find the secrets of a command that they start by themselves; None if these are
            sent to them over SSH.
        mover: copies data and results between laptop and machines.
        code_source: makes the source of a job's code; it returns None for a job without code.
        authorized_key: the public half of the key that opens kedge's machines.
        agent_archive: packs the agent.
        group_token: returns the token by which the machines of a run recognize each other, the same one each time.
        render_unit: renders a job's systemd unit for a machine's root folder.
        environ: holds the values of secrets.
        store_caveats: what a machine can read or change in the store besides its own run.
        require_store: raises BadRequestError if the store can't be opened for lack of keys.
    """

    clock: Clock
    poll_until: PollUntil
    ledger: Ledger
    provider: Provider
    connector: Connector
    mover: DataMover
    store: ResultStore | None
    stage: Stage | None
    data_stage: DataStage | None = None
    secret_store: SecretStore | None = None
    code_source: Callable[[Job], CodeSource | None]
    authorized_key: str
    agent_archive: Callable[[], bytes]
    group_token: Callable[[str], str]
    render_unit: Callable[[Job, str], str]
    environ: Mapping[str, str]
    store_caveats: tuple[str, ...] = ()
    require_store: Callable[[], None] = lambda: None

    def has_results(self, run_id: str) -> bool:
        """Tell whether the object store holds anything of a run's machines, even if its list can't be read.

        Raises:
            UnreachableError: the store doesn't answer.
        """
        try:
            store = self.store
            return store is not None and any(store.manifest(run_id, rank=rank) for rank in self.ranks(run_id))
        except UnreachableError:
            raise
        except KedgeError:
            return True

    def ranks(self, run_id: str) -> Sequence[int]:
        """List the numbers that a run's machines have, or have had; the head's is first, and always there."""
        return range(1 + max((machine.rank for machine in self.ledger.machines(run_id)), default=0))
