"""`AwsCloudApi`: the `CloudApi` of EC2."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.cloud.api import CloudApi, Look, SelfEnd
from orchestrator.adapters.cloud.boot.job_user import END_COMMAND
from orchestrator.adapters.cloud.model import Chosen, Deletion, Draft, Instance, Made, Outcome
from orchestrator.adapters.providers.aws.instances.choice import Choice, RunParts, choose_machine
from orchestrator.adapters.providers.aws.instances.end_reasons import explain_end
from orchestrator.adapters.providers.aws.instances.find_instances import AwsInstances, parse_instance
from orchestrator.adapters.providers.aws.instances.run_instances import render_request
from orchestrator.adapters.providers.aws.refusals import read_failed_launch
from orchestrator.adapters.providers.aws.run_resources.guard import Schedules
from orchestrator.adapters.providers.aws.run_resources.leftovers import group_leftovers, role_leftovers
from orchestrator.adapters.providers.aws.run_resources.placement import placement_leftovers
from orchestrator.adapters.providers.aws.run_resources.resources import AwsRunResources, note_volumes
from orchestrator.adapters.providers.aws.run_resources.secrets import secret_leftovers
from orchestrator.adapters.providers.aws.tags import DEADLINE, tag_list
from orchestrator.adapters.providers.aws.volumes.volume_api import AwsVolumes

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.records import MachineRecord
    from orchestrator.adapters.cloud.volumes.model import DataVolume
    from orchestrator.adapters.providers.aws.context import AwsContext
    from orchestrator.core.machine import MachineEnd, MachineOrder


class AwsCloudApi(AwsInstances, CloudApi[Choice, RunParts]):
    """One account. EC2's accepted creations don't fail: a failed start shows as an instance that has ended."""

    def __init__(self, aws: AwsContext) -> None:
        super().__init__(aws.session)
        self.volumes = AwsVolumes(aws.session, partial(note_volumes, aws))
        self.guard = Schedules(aws.session, aws.account)
        self.resources = AwsRunResources(aws)
        self._aws = aws

    def account_id(self) -> str:
        """Return the account of the credentials; requested once a day."""
        return self._aws.account_id()

    def known_places(self) -> set[str]:
        """Return the regions that the user's configuration names."""
        return {self._session.said, *self._aws.regions}

    def choose(self, order: MachineOrder) -> Chosen[Choice]:
        """Look up the type, the image and the user's own network; most of it is cached for a day."""
        choice = choose_machine(self._aws, order)
        return Chosen(gpus=choice.type.gpus, native=choice)

    def send(self, draft: Draft[Choice, RunParts]) -> Outcome:
        """Send RunInstances once, with its token."""
        ec2 = self._session.client("ec2", draft.order.region, single_shot=True)
        try:
            made = ec2.run_instances(**render_request(draft))["Instances"][0]
            return Made(instance=parse_instance(made, draft.order.region))
        except (ClientError, BotoCoreError, ResponseParserError) as err:
            return read_failed_launch(err, draft.order)

    def delete(self, instance_id: str, region: str) -> Deletion:
        """Send TerminateInstances; an instance that EC2 doesn't know yet keeps running."""
        try:
            self._session.client("ec2", region).terminate_instances(InstanceIds=[instance_id])
        except (ClientError, BotoCoreError) as err:
            if isinstance(err, ClientError) and code_of(err) == "InvalidInstanceID.NotFound":
                return Deletion.UNKNOWN
            raise translate(err, f"instance {instance_id} can't be ended") from err
        return Deletion.ACCEPTED

    def why_ended(self, record: MachineRecord | None, found: Sequence[Instance], now: datetime) -> MachineEnd | None:
        """Read it from an instance that AWS still lists; an ended instance loses its tags first."""
        if record is not None and record.provider_id:
            own = [each for each in found if each.id == record.provider_id]
            found = own or self.read_instances([record.provider_id], record.region)
        if not found:
            return None
        return explain_end(found[0], record.deadline_at if record else found[0].deadline_at, now)

    def mark_lifetime(self, instance: Instance, lifetime: timedelta) -> bool:
        """Write the deadline's tag: it counts from the time of the request, which is a tag as well."""
        asked_at = datetime.fromisoformat(instance.attempt)
        tags = tag_list({DEADLINE: (asked_at + lifetime).isoformat()})
        try:
            self._session.client("ec2", instance.region).create_tags(Resources=[instance.id], Tags=tags)
        except (ClientError, BotoCoreError) as err:
            raise translate(err, f"instance {instance.id} can't be tagged") from err
        return True

    def looks(self, places: Sequence[str]) -> Sequence[Look]:
        """Return the looks for roles, secrets, and in each region security and placement groups: none of them bills."""
        roles = Look(see=partial(role_leftovers, self._session.client("iam")), may_bill=False)
        secrets = Look(see=partial(secret_leftovers, self._aws), may_bill=False)
        groups = (
            Look(see=partial(group_leftovers, self._session.client("ec2", place)), place=place, may_bill=False)
            for place in places
        )
        placements = (
            Look(see=partial(placement_leftovers, self._session.client("ec2", place)), place=place, may_bill=False)
            for place in places
        )
        return [roles, secrets, *groups, *placements]

    def self_end(self, volumes: Sequence[DataVolume]) -> SelfEnd:  # noqa: ARG002
        """Power off, which ends an instance for good."""
        return SelfEnd(command=END_COMMAND)
