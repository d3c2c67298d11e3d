"""Each refusal of AWS, received over HTTP, becomes an error whose class says how to react."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.cloud.refusals import Reaction, Refusal
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.refusal_table import REFUSALS
from orchestrator.adapters.providers.aws.refusals import refusal_of, refused_launch, render_table
from orchestrator.core.errors import (
    BadRequestError,
    KedgeError,
    NoCapacityError,
    StillBillingError,
    UnreachableError,
)
from orchestrator.core.machine import MachineOrder
from orchestrator.core.offer import Accelerators, Offer
from tests.cloudbox.aws.box import Box

DOCS = Path(__file__).parents[3] / "docs" / "aws-errors.md"
WHAT = "g5.xlarge in us-east-1a can't be launched"
OFFER = Offer(
    provider="aws",
    region="us-east-1",
    zone="us-east-1a",
    instance_type="g5.xlarge",
    accelerators=Accelerators(name="a10g"),
    gpu_memory_gib=22.4,
    cpus=4,
    memory_gib=16,
    disk_gib=75,
    usd_per_hour=Decimal("1.006"),
)
ORDER = MachineOrder(
    id="digits-1121-ab2c-m1",
    run_id="digits-1121-ab2c",
    offer=OFFER,
    lifetime_seconds=3600,
    authorized_key="",
    agent_archive=b"",
    store_url="",
)
NEXT = {Reaction.NEXT_POOL, Reaction.NEXT_ZONE, Reaction.NEXT_REGION, Reaction.NEXT_QUOTA}


@pytest.fixture(scope="module")
def user(api_process: Box) -> Iterator[AwsSession]:
    """A user of the box's account, shared because creating clients is slow."""
    with pytest.MonkeyPatch.context() as shell:
        for name, value in api_process.env.items():
            shell.setenv(name, value)
        yield AwsSession()


@pytest.fixture
def session(api: Box, user: AwsSession) -> AwsSession:
    """The same user, in an account without any resources."""
    return user


def refused(session: AwsSession, offer: Offer = OFFER) -> tuple[Refusal, KedgeError]:
    """Launch, and return the refusal and the error that it becomes."""
    ec2 = session.client("ec2", offer.region, single_shot=True)
    try:
        ec2.run_instances(ImageId="ami-1", InstanceType="g5.xlarge", MinCount=1, MaxCount=1, ClientToken="one")
    except (ClientError, BotoCoreError) as err:
        return refusal_of(err), refused_launch(err, replace(ORDER, offer=offer), WHAT)
    pytest.fail("AWS did not refuse the launch")


def _name(value: str | Refusal) -> str:
    return value if isinstance(value, str) else value.reaction.name


@pytest.mark.parametrize(
    ("code", "known"), [(code, refusal) for refusal in REFUSALS for code in refusal.codes], ids=_name
)
def test_each_code_of_the_table_is_recognised(session: AwsSession, api: Box, code: str, known: Refusal) -> None:
    """It comes with AWS's own status. The request is sent once: the SDK would retry where capacity is lacking."""
    sent = code.replace("*", "Malformed")
    api.fail_next("RunInstances", sent, message=f"ordered by the test {' '.join(known.parts)}")
    refusal, error = refused(session)
    assert refusal is known
    assert isinstance(error, NoCapacityError) == (refusal.reaction in NEXT)
    assert isinstance(error, StillBillingError) == (refusal.reaction in (Reaction.UNCLEAR, Reaction.LOOK_UP))
    assert isinstance(error, BadRequestError) == refusal.our_fault
    assert error.what == WHAT
    assert sent in error.why
    assert error.fix
    assert "{" not in error.fix
    assert len(api.calls("ec2", "RunInstances")) == 1


def test_an_unknown_code_stops_the_launch_and_quotes_aws(session: AwsSession, api: Box) -> None:
    """A guess could cost money."""
    api.fail_next("RunInstances", "SomethingNew", message="a sentence of AWS's")
    refusal, error = refused(session)
    assert (refusal.reaction, type(error)) == (Reaction.STOP, KedgeError)
    assert "SomethingNew: a sentence of AWS's" in error.why


def test_lack_of_capacity_rules_out_one_pool_only(session: AwsSession, api: Box) -> None:
    """The same type in another zone, or another type in this zone, may be available."""
    api.fail_next("RunInstances", "InsufficientInstanceCapacity")
    error = refused(session)[1]
    assert isinstance(error, NoCapacityError)
    assert error.covers(OFFER)
    assert not error.covers(replace(OFFER, zone="us-east-1b"))
    assert not error.covers(replace(OFFER, instance_type="g5.2xlarge"))


def test_a_subnet_without_addresses_rules_out_its_zone(session: AwsSession, api: Box) -> None:
    """For machines of every type."""
    api.fail_next("RunInstances", "InsufficientFreeAddressesInSubnet")
    error = refused(session)[1]
    assert isinstance(error, NoCapacityError)
    assert error.covers(replace(OFFER, instance_type="g5.2xlarge"))
    assert not error.covers(replace(OFFER, zone="us-east-1b"))


def test_an_organization_s_policy_rules_out_the_region(session: AwsSession, api: Box) -> None:
    """Its other zones and types are denied as well; the next region may be open.

    fact: aws-scp-deny
    """
    api.close_region("us-east-1", "scp-launches")
    _, error = refused(session)
    assert isinstance(error, NoCapacityError)
    assert "service control policy" in error.why
    assert error.covers(replace(OFFER, zone="us-east-1f", instance_type="g4dn.xlarge"))
    assert not error.covers(replace(OFFER, region="us-west-2", zone="us-west-2a"))


@pytest.mark.parametrize(
    ("spot", "code", "quota"),
    [(False, "VcpuLimitExceeded", "L-DB2E81BA"), (True, "MaxSpotInstanceCountExceeded", "L-3819A6DF")],
)
def test_a_quota_rules_out_its_family_in_its_region_and_market(
    session: AwsSession, api: Box, spot: bool, code: str, quota: str
) -> None:
    """No other zone and no other size is tried; another region, market or family is. The fix names the quota."""
    offer = replace(OFFER, spot=spot)
    api.fail_next("RunInstances", code)
    error = refused(session, offer)[1]
    assert isinstance(error, NoCapacityError)
    assert error.covers(replace(offer, zone="us-east-1b", instance_type="g4dn.xlarge"))
    assert not error.covers(replace(offer, region="us-west-2", zone="us-west-2a"))
    assert not error.covers(replace(offer, spot=not spot))
    assert not error.covers(replace(offer, instance_type="p3.2xlarge"))
    assert f"{quota} at https://us-east-1.console.aws.amazon.com/servicequotas/" in error.fix
    assert error.fix.count(quota) == 2


def test_a_launch_is_retried_while_its_new_role_is_unknown(session: AwsSession, api: Box) -> None:
    """IAM publishes a role after some seconds. Any other invalid parameter is a mistake and stops the launch."""
    profile = "Value (kedge-run-1) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
    api.fail_next("RunInstances", "InvalidParameterValue", message=profile)
    assert refused(session)[0].reaction is Reaction.NOT_YET
    api.fail_next("RunInstances", "InvalidParameterValue", message="Value (x) for parameter ebs is invalid")
    assert refused(session)[0].reaction is Reaction.STOP


def test_a_launch_whose_answer_is_lost_may_be_billing(session: AwsSession, api: Box) -> None:
    """The request was sent, so no other machine may be requested with another token."""
    api.drop_next("RunInstances")
    refusal, error = refused(session)
    assert (refusal.reaction, type(error)) == (Reaction.UNCLEAR, StillBillingError)
    assert "kedge status" in error.fix


def test_a_request_that_was_never_sent_creates_nothing(session: AwsSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens at the endpoint, so it is certain that there is no machine."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    refusal, error = refused(AwsSession())
    assert (refusal.reaction, type(error)) == (Reaction.STOP, UnreachableError)


def test_the_documented_table_matches_the_code() -> None:
    """docs/aws-errors.md is the output of render_table."""
    assert DOCS.read_text() == render_table()
