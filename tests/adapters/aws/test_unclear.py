"""However the request for a machine breaks, there is one machine or none, and the next command knows."""

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
def test_a_call_that_aws_could_not_take_is_repeated(aws: AwsWorld, code: str, status: int) -> None:
    """With the same token, so that it makes no difference whether the first one had an effect."""
    aws.api.fail_next("RunInstances", code, times=2, status=status)
    aws.provider().create(aws.order())
    assert len(aws.instances()) == 1
    assert len({call.params["ClientToken"] for call in aws.api.calls("ec2", "RunInstances")}) == 1
    assert launches(aws) == 3


def test_a_new_role_is_waited_for_by_asking_again(aws: AwsWorld) -> None:
    """IAM tells EC2 of an instance profile a few seconds late: no pause is spent when it doesn't."""
    before = aws.clock.now()
    aws.api.fail_next("RunInstances", "InvalidParameterValue", times=3, status=400, message=NO_PROFILE)
    aws.provider().create(aws.order())
    assert launches(aws) == 4
    assert aws.clock.now() - before < timedelta(seconds=60)


def test_a_role_that_never_comes_is_given_up_after_a_minute(aws: AwsWorld) -> None:
    """The wait is bounded, and nothing is left that looks like a machine."""
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
def test_what_was_made_a_moment_ago_may_be_unknown_for_a_while(aws: AwsWorld, action: str, code: str) -> None:
    """One part of AWS hears late of what another has made: it is asked again, for half a minute."""
    scans = VolumeSpec(name="scans", target="data/scans", size_gib=1)
    begun = aws.clock.now()
    if action == "DescribeVolumes":
        # The first looks for volumes of this name, which is no error where there are none.
        aws.api.delay_next(action, 0)
    aws.api.fail_next(action, code, times=3, status=400)
    aws.provider().create(aws.order(volumes=(scans,)))
    assert len(aws.instances()) == 1
    assert aws.clock.now() - begun < timedelta(seconds=60)


def test_a_new_volume_that_is_not_known_yet_is_deleted_all_the_same(aws: AwsWorld) -> None:
    """The machine could not be had: nothing else would ever take the volume away."""
    aws.api.fail_next("RunInstances", "InsufficientInstanceCapacity", status=500)
    aws.api.fail_next("DeleteVolume", "InvalidVolume.NotFound", times=2, status=400)
    with pytest.raises(NoCapacityError):
        aws.provider().create(aws.order(volumes=(VolumeSpec(name="scans", target="data/scans", size_gib=1),)))
    assert aws.api.billing() == []


def test_a_dropped_answer_makes_no_second_machine(aws: AwsWorld) -> None:
    """The request had its effect; sent again, it returns what it made."""
    aws.api.drop_next("RunInstances", times=2)
    machine = aws.provider().create(aws.order())
    (instance,) = aws.instances()
    assert machine.provider_id == instance["InstanceId"]
    assert aws.schedules() == [M1]


def test_a_machine_whose_answers_are_all_lost_is_found_by_its_tag(aws: AwsWorld) -> None:
    """It is kedge's own, so it is used; its host key is known."""
    aws.api.drop_next("RunInstances", times=None)
    machine = aws.provider().create(aws.order())
    assert len(aws.instances()) == 1
    found = aws.provider().describe(M1)
    assert found is not None
    assert machine.address is not None
    assert found.address == machine.address


def test_what_nobody_can_tell_may_be_billing(aws: AwsWorld) -> None:
    """No answer and no instance: it counts as a machine for a quarter of an hour from the last request on."""
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


def test_no_machine_is_made_while_another_may_have_been(aws: AwsWorld) -> None:
    """Neither the next of the run nor the same one elsewhere; another run is free, and so is this one later."""
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


def test_a_machine_that_turns_up_late_no_longer_stands_in_the_way(aws: AwsWorld) -> None:
    """AWS listed it after all: it is one machine more, and known."""
    aws.api.drop_next("RunInstances", times=None)
    aws.api.fail_next("DescribeInstances", "UnauthorizedOperation", times=None, status=403)
    with pytest.raises(StillBillingError):
        aws.provider().create(aws.order(1))
    aws.api.clear_faults()
    assert [machine.id for machine in aws.provider().machines()] == [M1]
    aws.provider().create(aws.order(2))
    assert len(aws.instances()) == 2


def test_a_machine_that_was_just_asked_for_counts_as_unknown(aws: AwsWorld) -> None:
    """A command that died within the request leaves a machine that may come to be."""
    aws.api.delay_next("RunInstances", 3)
    kill_when(aws, "RunInstances")
    (machine,) = aws.provider().machines()
    assert machine.id == M1
    assert machine.state in {MachineState.UNKNOWN, MachineState.READY}
    # The request is still under way, and no business of the next test's.
    wait_until(lambda: bool(aws.instances()))


def test_a_command_killed_within_the_request_counts_as_long_as_an_answer_that_was_lost(aws: AwsWorld) -> None:
    """Nobody has read an answer: for a quarter of an hour it may be billing, and no other machine is made."""
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
    """A machine of which AWS has told is gone as soon as AWS no longer lists it, and stands in nobody's way."""
    aws.provider().create(aws.order())
    aws.provider().destroy(M1)
    aws.api.reset()
    set_up(aws.api)
    aws.clock.sleep(timedelta(minutes=2))
    assert list(aws.provider().machines()) == []
    aws.provider().create(aws.order(2))


def test_a_command_killed_right_after_the_request_leaves_all_that_is_needed(aws: AwsWorld) -> None:
    """The next one finds the machine, knows its host key, and gives it its schedule; there is only one."""
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


def test_a_machine_of_another_laptop_is_not_made_twice(aws: AwsWorld) -> None:
    """The token says that it is there; it can't be reached from here, for its host key is the other's."""
    made = aws.provider().create(aws.order())
    other = AwsWorld(api=aws.api, folder=aws.folder / "other")
    found = other.provider().create(aws.order())
    assert found.provider_id == made.provider_id
    assert found.address is None
    assert len(aws.instances()) == 1


def test_a_lack_of_capacity_is_asked_once_and_the_next_zone_is_free_to_try(aws: AwsWorld) -> None:
    """AWS sends it with a status on which SDKs ask again; kedge goes on to the next offer."""
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
    """A clear no to the only request is no machine."""
    aws.api.fail_next("RunInstances", code, status=403)
    with pytest.raises(KedgeError) as caught:
        aws.provider().create(aws.order())
    assert not isinstance(caught.value, StillBillingError)
    assert list(aws.provider().machines()) == []


def test_a_lack_of_capacity_is_a_clear_no_even_after_a_lost_answer(aws: AwsWorld) -> None:
    """AWS has looked at this very request: the next offer may be tried at once."""
    aws.api.drop_next("RunInstances", before_effect=True)
    aws.api.fail_next("RunInstances", "InsufficientInstanceCapacity", times=None, status=500)
    with pytest.raises(NoCapacityError):
        aws.provider().create(aws.order())
    assert list(aws.provider().machines()) == []


@pytest.mark.parametrize(
    ("code", "message"),
    [("InvalidParameterValue", NO_PROFILE), ("ExpiredToken", "expired"), ("UnauthorizedOperation", "not allowed")],
)
def test_a_machine_whose_answer_was_lost_is_found_whatever_is_refused_then(
    aws: AwsWorld, code: str, message: str
) -> None:
    """AWS refuses the second request before it looks at the token: the first one may have made the machine."""
    aws.api.drop_next("RunInstances")
    aws.api.fail_next("RunInstances", code, times=None, status=400, message=message)
    machine = aws.provider().create(aws.order())
    (instance,) = aws.instances()
    assert (machine.provider_id, machine.address is not None) == (instance["InstanceId"], True)
    assert aws.schedules() == [M1]


def test_a_machine_that_nobody_noted_is_released_once_it_has_ended(aws: AwsWorld) -> None:
    """Its request stayed unclear, and only its end is seen: there is nothing left to wait for."""
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


def test_a_disk_that_cannot_be_is_refused_before_anything_is_recorded(aws: AwsWorld) -> None:
    """Nothing was sent: the run's next machine need not wait until it is clear what was made."""
    with pytest.raises(BadRequestError, match="disk"):
        aws.provider().create(aws.order(disk_gib=8, disk_iops=50_000))
    assert list(aws.provider().machines()) == []
    assert aws.provider().create(aws.order(2)).id == f"{RUN}-m2"
