"""A launch request that breaks anywhere creates at most one machine, and the next command knows about it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError, StillBillingError
from orchestrator.core.job import VolumeSpec
from orchestrator.core.machine import MachineState
from tests.adapters.aws.killing import kill_when
from tests.adapters.aws.world import RUN, AwsWorld, set_up
from tests.cloudbox.aws.box import REGION
from tests.support.waiting import wait_until

M1 = f"{RUN}-m1"
NO_PROFILE = "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"


def launches(aws: AwsWorld) -> int:
    return len(aws.api.calls("ec2", "RunInstances"))


@pytest.mark.parametrize(
    ("code", "status"),
    [("RequestLimitExceeded", 503), ("InternalError", 500), ("ServerInternal", 500), ("Unavailable", 503)],
)
def test_a_call_that_aws_could_not_process_is_retried(aws: AwsWorld, code: str, status: int) -> None:
    """The retry has the same token, so it does not matter whether the first one had an effect."""
    aws.api.fail_next("RunInstances", code, times=2, status=status)
    aws.provider().create(aws.order())
    assert len(aws.instances()) == 1
    assert len({call.params["ClientToken"] for call in aws.api.calls("ec2", "RunInstances")}) == 1
    assert launches(aws) == 3


def test_a_launch_is_retried_until_its_new_role_is_known(aws: AwsWorld) -> None:
    """EC2 may learn of an instance profile a few seconds late. If it knows the profile, there is no pause."""
    before = aws.clock.now()
    aws.api.fail_next("RunInstances", "InvalidParameterValue", times=3, status=400, message=NO_PROFILE)
    aws.provider().create(aws.order())
    assert launches(aws) == 4
    assert aws.clock.now() - before < timedelta(seconds=60)


def test_a_role_that_never_appears_is_given_up_after_a_minute(aws: AwsWorld) -> None:
    """The wait is bounded, and leaves nothing that looks like a machine."""
    aws.api.fail_next("RunInstances", "InvalidParameterValue", times=None, status=400, message=NO_PROFILE)
    with pytest.raises(KedgeError):
        aws.provider().create(aws.order())
    assert launches(aws) < 20
    assert list(aws.provider().machines()) == []


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("PutRolePolicy", "NoSuchEntity"),
        ("AddRoleToInstanceProfile", "NoSuchEntity"),
        ("AuthorizeSecurityGroupIngress", "InvalidGroup.NotFound"),
        ("DescribeVolumes", "InvalidVolume.NotFound"),
        ("AttachVolume", "InvalidVolume.NotFound"),
    ],
)
def test_a_call_is_retried_while_a_new_resource_is_unknown(aws: AwsWorld, action: str, code: str) -> None:
    """AWS is eventually consistent, so kedge retries for half a minute."""
    scans = VolumeSpec(name="scans", target="data/scans", size_gib=1)
    begun = aws.clock.now()
    if action == "DescribeVolumes":
        # The first call looks for volumes of this name, and finds none without an error.
        aws.api.delay_next(action, 0)
    aws.api.fail_next(action, code, times=3, status=400)
    aws.provider().create(aws.order(volumes=(scans,)))
    assert len(aws.instances()) == 1
    assert aws.clock.now() - begun < timedelta(seconds=60)


def test_a_new_volume_that_is_not_known_yet_is_still_deleted(aws: AwsWorld) -> None:
    """The machine could not be created, and nothing else would ever delete the volume."""
    aws.api.fail_next("RunInstances", "InsufficientInstanceCapacity", status=500)
    aws.api.fail_next("DeleteVolume", "InvalidVolume.NotFound", times=2, status=400)
    with pytest.raises(NoCapacityError):
        aws.provider().create(aws.order(volumes=(VolumeSpec(name="scans", target="data/scans", size_gib=1),)))
    assert aws.api.billing() == []


def test_a_lost_answer_creates_no_second_machine(aws: AwsWorld) -> None:
    """The request had its effect; sent again, it returns the machine that it created."""
    aws.api.drop_next("RunInstances", times=2)
    machine = aws.provider().create(aws.order())
    (instance,) = aws.instances()
    assert machine.provider_id == instance["InstanceId"]
    assert aws.schedules() == [M1]


def test_a_machine_whose_answers_are_all_lost_is_found_by_its_tag(aws: AwsWorld) -> None:
    """The tag proves that kedge created it, so it is used; its host key is known."""
    aws.api.drop_next("RunInstances", times=None)
    machine = aws.provider().create(aws.order())
    assert len(aws.instances()) == 1
    found = aws.provider().describe(M1)
    assert found is not None
    assert machine.address is not None
    assert found.address == machine.address


def test_a_launch_without_answer_and_without_instance_may_be_billing(aws: AwsWorld) -> None:
    """It counts as a machine for 15 minutes from the last request on."""
    aws.api.drop_next("RunInstances", times=None, before_effect=True)
    laptop = aws.provider()
    with pytest.raises(StillBillingError, match=M1):
        laptop.create(aws.order())
    ended = aws.clock.now()
    aws.clock.sleep(timedelta(minutes=13))
    (machine,) = aws.provider().machines()
    assert (machine.id, machine.state) == (M1, MachineState.UNKNOWN)
    assert aws.provider().describe(M1) == machine
    aws.clock.sleep(timedelta(minutes=16) - (aws.clock.now() - ended))
    assert list(aws.provider().machines()) == []
    assert aws.provider().describe(M1) is None


def test_no_machine_is_created_while_another_launch_is_unclear(aws: AwsWorld) -> None:
    """Neither the run's next machine nor the same one elsewhere. Other runs may create, and so may this one later."""
    aws.api.drop_next("RunInstances", times=None, before_effect=True)
    with pytest.raises(StillBillingError):
        aws.provider().create(aws.order(1))
    aws.api.clear_faults()
    for order in (aws.order(2), aws.order(1, zone=f"{REGION}b")):
        with pytest.raises(StillBillingError, match=M1):
            aws.provider().create(order)
    assert aws.instances() == []
    aws.provider().create(aws.order(1, id="next-1-m1", run_id="next-1"))
    aws.clock.sleep(timedelta(minutes=16))
    aws.provider().create(aws.order(2))
    assert len(aws.instances()) == 2


def test_a_machine_that_appears_late_no_longer_blocks_the_run(aws: AwsWorld) -> None:
    """AWS lists it after all, so it is known, as one machine more."""
    aws.api.drop_next("RunInstances", times=None)
    aws.api.fail_next("DescribeInstances", "UnauthorizedOperation", times=None, status=403)
    with pytest.raises(StillBillingError):
        aws.provider().create(aws.order(1))
    aws.api.clear_faults()
    assert [machine.id for machine in aws.provider().machines()] == [M1]
    aws.provider().create(aws.order(2))
    assert len(aws.instances()) == 2


def test_a_machine_whose_request_is_under_way_counts_as_unclear(aws: AwsWorld) -> None:
    """A command that dies during the request may leave a machine that appears later."""
    aws.api.delay_next("RunInstances", 3)
    kill_when(aws, "RunInstances")
    (machine,) = aws.provider().machines()
    assert machine.id == M1
    assert machine.state in {MachineState.UNKNOWN, MachineState.READY}
    # The request is still under way, and must not disturb the next test.
    wait_until(lambda: bool(aws.instances()))


def test_a_launch_killed_during_its_request_is_unclear_as_long_as_one_with_a_lost_answer(aws: AwsWorld) -> None:
    """Nobody read an answer: for 15 minutes it may be billing, and no other machine is created."""
    aws.api.drop_next("RunInstances", before_effect=True, seconds=3)
    kill_when(aws, "RunInstances")
    aws.clock.sleep(timedelta(minutes=13))
    (machine,) = aws.provider().machines()
    assert (machine.id, machine.state) == (M1, MachineState.UNKNOWN)
    for order in (aws.order(1), aws.order(2)):
        with pytest.raises(StillBillingError, match=M1):
            aws.provider().create(order)
    aws.clock.sleep(timedelta(minutes=3))
    assert list(aws.provider().machines()) == []
    aws.provider().create(aws.order(2))
    assert len(aws.instances()) == 1


def test_an_answer_ends_the_uncertainty(aws: AwsWorld) -> None:
    """A machine that AWS has confirmed is gone as soon as AWS no longer lists it, and blocks nothing."""
    aws.provider().create(aws.order())
    aws.provider().destroy(M1)
    aws.api.reset()
    set_up(aws.api)
    aws.clock.sleep(timedelta(minutes=2))
    assert list(aws.provider().machines()) == []
    aws.provider().create(aws.order(2))


def test_a_command_killed_right_after_the_request_leaves_all_that_the_next_one_needs(aws: AwsWorld) -> None:
    """The next command finds the machine, knows its host key, and creates its schedule. There is one machine."""
    aws.api.delay_next("CreateSchedule", 3)
    kill_when(aws, "CreateSchedule")
    (found,) = aws.provider().machines()
    assert found.id == M1
    assert found.address is not None
    assert found.address.host_key.startswith("ecdsa-sha2-nistp256 ")
    again = aws.provider().create(aws.order())
    assert again.address == found.address
    assert len(aws.instances()) == 1
    assert aws.schedules() == [M1]


def test_a_machine_of_another_laptop_is_not_created_twice(aws: AwsWorld) -> None:
    """The token shows that it exists. It cannot be reached from here, because the other laptop has its host key."""
    made = aws.provider().create(aws.order())
    other = AwsWorld(api=aws.api, folder=aws.folder / "other")
    found = other.provider().create(aws.order())
    assert found.provider_id == made.provider_id
    assert found.address is None
    assert len(aws.instances()) == 1


def test_a_lack_of_capacity_is_not_retried_and_the_next_zone_can_be_tried(aws: AwsWorld) -> None:
    """AWS sends it with a status that SDKs retry; kedge goes on to the next offer."""
    aws.api.fail_next("RunInstances", "InsufficientInstanceCapacity", status=500)
    laptop = aws.provider()
    with pytest.raises(NoCapacityError):
        laptop.create(aws.order())
    assert launches(aws) == 1
    assert list(aws.provider().machines()) == []
    machine = laptop.create(aws.order(zone=f"{REGION}b"))
    assert [instance["InstanceId"] for instance in aws.instances()] == [machine.provider_id]


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "ExpiredToken", "InvalidParameterValue"])
def test_a_refused_machine_leaves_no_trace_of_itself(aws: AwsWorld, code: str) -> None:
    """A clear refusal of the only request means that there is no machine."""
    aws.api.fail_next("RunInstances", code, status=403)
    with pytest.raises(KedgeError) as caught:
        aws.provider().create(aws.order())
    assert not isinstance(caught.value, StillBillingError)
    assert list(aws.provider().machines()) == []


def test_a_lack_of_capacity_is_a_clear_refusal_even_after_a_lost_answer(aws: AwsWorld) -> None:
    """AWS has judged this very request, so the next offer can be tried at once."""
    aws.api.drop_next("RunInstances", before_effect=True)
    aws.api.fail_next("RunInstances", "InsufficientInstanceCapacity", times=None, status=500)
    with pytest.raises(NoCapacityError):
        aws.provider().create(aws.order())
    assert list(aws.provider().machines()) == []


@pytest.mark.parametrize(
    ("code", "message"),
    [("InvalidParameterValue", NO_PROFILE), ("ExpiredToken", "expired"), ("UnauthorizedOperation", "not allowed")],
)
def test_a_machine_whose_answer_was_lost_is_found_even_if_the_retry_is_refused(
    aws: AwsWorld, code: str, message: str
) -> None:
    """AWS refuses the retry before it looks at the token. The first request may have created the machine."""
    aws.api.drop_next("RunInstances")
    aws.api.fail_next("RunInstances", code, times=None, status=400, message=message)
    machine = aws.provider().create(aws.order())
    (instance,) = aws.instances()
    assert (machine.provider_id, machine.address is not None) == (instance["InstanceId"], True)
    assert aws.schedules() == [M1]


def test_a_machine_of_an_unclear_request_is_released_once_it_has_ended(aws: AwsWorld) -> None:
    """Its end is the first that is seen of it; after that there is nothing left to wait for."""
    aws.api.drop_next("RunInstances", times=None)
    aws.api.fail_next("DescribeInstances", "RequestLimitExceeded", times=None, status=503)
    with pytest.raises(StillBillingError):
        aws.provider().create(aws.order())
    aws.api.clear_faults()
    laptop = aws.provider()
    laptop.destroy(M1)
    aws.api.finish_states()
    assert laptop.describe(M1) is None
    laptop.release(RUN)
    assert aws.api.billing() == []


def test_an_impossible_disk_is_refused_before_anything_is_recorded(aws: AwsWorld) -> None:
    """Nothing was sent, so the run's next machine does not have to wait."""
    with pytest.raises(BadRequestError, match="disk"):
        aws.provider().create(aws.order(disk_gib=8, disk_iops=50_000))
    assert list(aws.provider().machines()) == []
    assert aws.provider().create(aws.order(2)).id == f"{RUN}-m2"
