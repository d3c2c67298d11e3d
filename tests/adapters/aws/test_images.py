"""Which image a machine starts from, looked up over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.providers.aws.access.closed import NotInRegionError
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.cache import Cache
from orchestrator.adapters.providers.aws.market.images import find_image
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.job import Resources
from orchestrator.core.offer import Accelerators
from tests.cloudbox.aws.box import Box

DEBIAN = "/aws/service/debian/release/12/latest/amd64"
GPU = Accelerators(name="t4")


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


def test_a_gpu_gets_the_newest_image_with_its_driver_and_torch(session: AwsSession) -> None:
    """In the requested region: an image id is valid in one region only."""
    found = find_image(Resources(), session, "us-east-1", GPU)
    assert "pytorch" in found.name
    assert (found.root_device, found.min_disk_gib > 0) == ("/dev/sda1", True)
    assert find_image(Resources(), session, "eu-central-1", GPU).id != found.id


def test_the_newest_image_that_the_region_has_is_taken(session: AwsSession, api: Box) -> None:
    """Images are withdrawn one by one. A look-up is one request for all of them; those without torch come last.

    fact: aws-dlami-parameters
    """
    for kind in (
        *(f"pytorch-2.{minor}-ubuntu-24.04" for minor in (12, 11, 10, 9, 8)),
        "pytorch-2.7-ubuntu-22.04",
        "base-oss-nvidia-driver-gpu-ubuntu-24.04",
        "base-oss-nvidia-driver-gpu-ubuntu-22.04",
    ):
        api.reset_calls()
        assert kind in find_image(Resources(), session, "us-east-1", GPU).name
        assert len(api.calls("ssm")) == 1
        api.withdraw_image(kind)


def test_a_region_without_any_image_has_its_own_error(session: AwsSession, api: Box) -> None:
    """Another region may have one."""
    api.withdraw_image("deeplearning", region="eu-west-1")
    with pytest.raises(NotInRegionError, match="eu-west-1 has no image"):
        find_image(Resources(), session, "eu-west-1", GPU)
    assert "pytorch" in find_image(Resources(), session, "us-east-1", GPU).name


def test_a_machine_without_gpu_gets_plain_ubuntu(session: AwsSession) -> None:
    """No driver, no torch, a small disk."""
    assert "ubuntu-22.04" in find_image(Resources(), session, "us-east-1", None).name


def test_an_image_by_id_or_by_parameter_wins(session: AwsSession) -> None:
    """The GPU does not matter then."""
    by_parameter = find_image(Resources(image_id=f"ssm:{DEBIAN}"), session, "us-east-1", GPU)
    assert (by_parameter.name.startswith("debian-12"), by_parameter.root_device) == (True, "/dev/xvda")
    assert find_image(Resources(image_id=by_parameter.id), session, "us-east-1", GPU) == by_parameter


@pytest.mark.parametrize("image_id", ["ami-00000000000000000", "ssm:/nowhere"])
def test_an_image_that_isnt_there_is_refused(session: AwsSession, image_id: str) -> None:
    """The id may belong to another region."""
    with pytest.raises(BadRequestError, match="us-east-1"):
        find_image(Resources(image_id=image_id), session, "us-east-1", GPU)


def test_a_gpu_that_the_open_driver_doesnt_support_needs_an_explicit_image(session: AwsSession) -> None:
    """A machine that could not use its GPU would only cost money."""
    with pytest.raises(BadRequestError, match="no public image drives a v100"):
        find_image(Resources(), session, "us-east-1", Accelerators(name="v100", count=4))
    named = Resources(image_id=f"ssm:{DEBIAN}")
    assert find_image(named, session, "us-east-1", Accelerators(name="v100", count=4)).id


def test_an_image_is_looked_up_once_a_day(session: AwsSession, api: Box, tmp_path: Path) -> None:
    """A second machine causes no request."""
    cache = Cache(tmp_path, SystemClock())
    first = find_image(Resources(), session, "us-east-1", GPU, cache=cache)
    api.reset_calls()
    assert find_image(Resources(), session, "us-east-1", GPU, cache=Cache(tmp_path, SystemClock())) == first
    assert not api.calls()


def test_a_damaged_cache_entry_is_looked_up_again(session: AwsSession, tmp_path: Path) -> None:
    """A full disk or an old version of kedge may leave any content."""
    cache = Cache(tmp_path, SystemClock())
    first = find_image(Resources(), session, "us-east-1", GPU, cache=cache)
    for kept in tmp_path.iterdir():
        kept.write_bytes(kept.read_bytes()[:20])
    assert find_image(Resources(), session, "us-east-1", GPU, cache=cache) == first


def test_an_image_lookup_without_permission_is_explained(session: AwsSession, api: Box) -> None:
    """The error names the call to allow."""
    api.fail_next("GetParameters", "AccessDeniedException", times=None)
    with pytest.raises(KedgeError, match="image in us-east-1 can't be looked up") as refused:
        find_image(Resources(), session, "us-east-1", GPU)
    assert "GetParameters" in refused.value.fix
