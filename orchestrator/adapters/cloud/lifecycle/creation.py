"""Creates a machine exactly once: whatever breaks in between, an order never has two.

The record is on the disk before the request is sent. The request carries an idempotency token or is sent only once, as
the cloud's strategy says, and what it made is found by its marks. If the outcome stays unclear, the order counts as a
machine for some minutes, and no other machine is created for its run.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.adapters.cloud.lifecycle.completing import complete, complete_adopted, end_again, failed_start
from orchestrator.adapters.cloud.lifecycle.drafting import make_draft, make_record
from orchestrator.adapters.cloud.lifecycle.reconcile import (
    find_earlier,
    look_up,
    note_instance,
    refuse_unclear,
    settle_duplicates,
)
from orchestrator.adapters.cloud.lifecycle.sending import send_one
from orchestrator.adapters.cloud.model import Chosen, Draft, Instance, Made, Ready, is_made_by
from orchestrator.adapters.cloud.refusals import Reaction, Refused, Unclear, translate_refusal
from orchestrator.adapters.cloud.volumes.find import existing_volumes
from orchestrator.adapters.cloud.volumes.ready import delete_new_volumes, ensure_volumes
from orchestrator.adapters.host.ids import check_id
from orchestrator.adapters.ssh.host_key import make_host_key
from orchestrator.core.errors import KedgeError, NoCapacityError, StillBillingError

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.context import CloudContext
    from orchestrator.adapters.cloud.records import MachineRecord
    from orchestrator.adapters.cloud.volumes.model import DataVolume
    from orchestrator.core.machine import MachineOrder

_log = logging.getLogger(__name__)


def create_instance(ctx: CloudContext, order: MachineOrder) -> Instance:
    """Create the order's instance, or find an existing one, and complete it.

    Raises:
        NoCapacityError: the cloud has no capacity; nothing was created.
        StillBillingError: something may have been created, and the cloud doesn't tell.
        ConflictError: another command of this computer is creating it.
        KedgeError: anything else; nothing of the machine is left.
    """
    check_id(order.id)
    check_id(order.run_id)
    with ctx.claimed(order.id):
        ctx.refuse_other_account(order.run_id)
        earlier = ctx.records.machine(order.id)
        found = find_earlier(ctx, order.id, earlier)
        living = next((each for each in found if each.can_serve), None)
        if living is not None:
            return complete_adopted(ctx, order, living, _existing_volumes(ctx, order))
        refuse_unclear(ctx, order.run_id)
        return _Creation(ctx, order, earlier, sorted(each.id for each in found)).launch()


class _Creation:
    """One attempt at one order."""

    def __init__(
        self, ctx: CloudContext, order: MachineOrder, earlier: MachineRecord | None, ended: Sequence[str]
    ) -> None:
        self._ctx = ctx
        self._order = order
        self._earlier = earlier
        self._ended = ended
        self._sent: MachineRecord | None = None

    def launch(self) -> Instance:
        try:
            instance, volumes = self._launch()
        except (NoCapacityError, StillBillingError):
            raise
        except KedgeError as err:
            if not self._ctx.api.why_closed(err):
                raise
            region = self._order.region
            raise NoCapacityError(
                err.what, why=err.why, fix=err.fix, covers=lambda other: other.region == region
            ) from err
        return self._complete(instance, volumes)

    def _launch(self) -> tuple[Instance, tuple[DataVolume, ...]]:
        chosen = self._ctx.api.choose(self._order)
        volumes = self._ensure_volumes()
        try:
            return self._ask(chosen, volumes), volumes
        except StillBillingError:
            # The instance may exist, with these volumes attached.
            raise
        except KedgeError:
            # The next offer may be in another place, where these volumes can't be attached.
            self._delete_new_volumes(volumes)
            raise

    def _ask(self, chosen: Chosen[Any], volumes: tuple[DataVolume, ...]) -> Instance:
        """Request the instance; once more if the run's recorded resources are gone at the cloud."""
        resources = self._ctx.api.resources
        ready = resources.ensure(self._order, chosen)
        outcome = self._ask_with(ready, chosen, volumes)
        if isinstance(outcome, Refused) and outcome.reaction is Reaction.NOT_YET and not ready.is_new:
            _log.info("resources of run %s are gone at %s: created again", self._order.run_id, self._ctx.traits.speaker)
            resources.renew(self._order)
            outcome = self._ask_with(resources.ensure(self._order, chosen), chosen, volumes)
        if isinstance(outcome, Refused):
            raise translate_refusal(outcome, self._order) from outcome.error
        return outcome

    def _ask_with(self, ready: Ready[Any], chosen: Chosen[Any], volumes: tuple[DataVolume, ...]) -> Instance | Refused:
        ctx, order = self._ctx, self._order
        if ctx.stage is not None and ctx.traits.boot.carries_bootstrap:
            ctx.stage().put_agent(order.run_id, order.agent_archive)
        key = make_host_key()
        record = make_record(ctx, order, key, gpus=chosen.gpus, ended=self._ended, ready=ready)
        draft = make_draft(ctx, order, key, record=record, chosen=chosen, ready=ready, volumes=volumes)
        return self._send(record, draft)

    def _send(self, record: MachineRecord, draft: Draft[Any, Any]) -> Instance | Refused:
        ctx = self._ctx
        outcome = send_one(
            lambda: ctx.api.send(draft),
            before=lambda: self._note_sending(record),
            refused=self._restore_record,
            strategy=ctx.idempotency,
            clock=ctx.clock,
            is_new=draft.ready.is_new,
        )
        match outcome:
            case Made():
                if outcome.action:
                    self._keep(replace(self._sent or record, action=outcome.action))
                return outcome.instance
            case Unclear():
                unclear = self._keep(replace(self._sent or record, unclear_since=ctx.clock.now()))
                found = look_up(ctx, unclear, self._ended, outcome)
                if outcome.is_final and not is_made_by(found, unclear):
                    # Another request has the token, so this one has made nothing.
                    self._restore_record()
                return found
            case Refused():
                return outcome

    def _complete(self, made: Instance, volumes: tuple[DataVolume, ...]) -> Instance:
        """Check that there is one instance, and complete it; if that fails, end it again."""
        ctx, order = self._ctx, self._order
        try:
            note_instance(ctx, order.id, made)
            stays = self._settle(made)
            complete(ctx, order, stays, volumes)
        except KedgeError as err:
            failed = failed_start(ctx, order, err)
            end_again(ctx, order, made, failed or err)
            if failed is not None or (ctx.api.volumes is not None and ctx.api.volumes.traits.attaches_at_birth):
                self._delete_new_volumes(volumes)
            if failed is not None and failed is not err:
                raise failed from err
            raise
        return stays

    def _settle(self, made: Instance) -> Instance:
        ctx = self._ctx
        stays = made
        if ctx.idempotency.settles_duplicates:
            stays = settle_duplicates(ctx, self._order.id, made) or made
        record = ctx.records.machine(self._order.id)
        if record is not None and record.unclear_since is None and not is_made_by(stays, record):
            # Another command or computer made it, with another host key: go back to the earlier record. But keep this
            # request's record while the request is unclear: only the record finds an instance that it may have made.
            self._restore_record()
        return stays

    def _note_sending(self, record: MachineRecord) -> None:
        """Write the record before a request is sent: this process may be killed before the answer comes."""
        now = self._ctx.clock.now()
        # If the instant is also the instance's mark (`ClientToken.attempt`), each sending keeps the first one's.
        asked_at = now if self._ctx.idempotency.settles_duplicates else record.asked_at
        self._sent = self._keep(replace(record, asked_at=asked_at, unclear_since=now))

    def _keep(self, record: MachineRecord) -> MachineRecord:
        self._ctx.records.keep_machine(record)
        return record

    def _restore_record(self) -> None:
        if self._earlier is not None:
            self._ctx.records.keep_machine(self._earlier)
        else:
            self._ctx.records.forget_machine(self._order.id)

    def _ensure_volumes(self) -> tuple[DataVolume, ...]:
        api = self._ctx.api.volumes
        return ensure_volumes(api, self._order, self._ctx.clock) if api is not None else ()

    def _delete_new_volumes(self, volumes: tuple[DataVolume, ...]) -> None:
        if self._ctx.api.volumes is not None:
            delete_new_volumes(self._ctx.api.volumes, volumes, self._ctx.clock)


def _existing_volumes(ctx: CloudContext, order: MachineOrder) -> tuple[DataVolume, ...]:
    return existing_volumes(ctx.api.volumes, order.volumes, order.region) if ctx.api.volumes is not None else ()
