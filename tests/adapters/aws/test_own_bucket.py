"""Nothing goes to, or comes from, a bucket whose name a stranger has taken over."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.account.bucket import bucket_versions, delete_bucket, look_at_bucket, own_s3
from orchestrator.adapters.providers.aws.account.plan import plan_account
from orchestrator.adapters.providers.aws.account.settings import AccountSettings, resolve_settings
from orchestrator.adapters.providers.aws.account_removal import plan_removal, remove_account
from orchestrator.adapters.store.results import Results
from orchestrator.adapters.store.transfer import TransferProgress
from orchestrator.adapters.sync.data.push import DataSets
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.job import DataMount
from tests.adapters.aws.world import RUN, AwsWorld, share_role
from tests.adapters.buckets import bucket_of
from tests.cloudbox.aws.box import REGION, Box
from tests.cloudbox.aws.wire.moto_state import ACCOUNT

BUCKET = "kedge-mine"


@pytest.fixture
def session(api: Box, monkeypatch: pytest.MonkeyPatch) -> AwsSession:
    for name, value in api.env.items():
        monkeypatch.setenv(name, value)
    api.client("s3").create_bucket(Bucket=BUCKET)
    return AwsSession(region=REGION)


def test_every_request_says_whose_the_bucket_must_be(api: Box, session: AwsSession, tmp_path: Path) -> None:
    """The stranger would let everybody in: S3 itself refuses, since no request comes without the owner's name.

    Uploads in parts, listings and deletions too.
    """
    s3 = own_s3(session, ACCOUNT)
    folder = bucket_of(s3, BUCKET)
    large = tmp_path / "large"
    large.write_bytes(bytes(20 << 20))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.txt").write_bytes(b"a")
    data = DataSets(bucket_of(s3, BUCKET, "data"), memory=tmp_path / "state", clock=SystemClock())
    silent = TransferProgress(lambda _done, _total: None, 1)
    folder.write("x", b"mine")
    api.give_bucket_away(BUCKET)
    api.reset_calls()
    asks: dict[str, Callable[[], object]] = {
        "read": lambda: folder.read("x", 100),
        "stream": lambda: list(folder.stream("x", 0)),
        "has": lambda: folder.has("x", io.BytesIO()),
        "write": lambda: folder.write("y", b"y"),
        "upload": lambda: folder.upload("y", large, silent),
        "results": lambda: Results(folder).manifest("r"),
        "data": lambda: data.put(str(tmp_path / "set"), lambda _done, _total: None),
    }
    for name, ask in asks.items():
        with pytest.raises(KedgeError) as caught:
            ask()
        assert "isn't this account's (any more)" in str(caught.value.why), name
    assert look_at_bucket(s3, BUCKET) == "forbidden"
    with pytest.raises(s3.exceptions.ClientError, match=r"AccessDenied|403"):
        list(bucket_versions(s3, BUCKET))
    with pytest.raises(s3.exceptions.ClientError, match=r"AccessDenied|403"):
        delete_bucket(s3, BUCKET, with_data=False)
    assert {call.status for call in api.calls("s3")} == {403}


def test_every_operation_on_a_bucket_that_can_name_the_owner_does(api: Box, session: AwsSession) -> None:
    """Also those that a transfer makes by itself, and those of later versions of the SDK."""
    s3 = own_s3(session, ACCOUNT)
    begun = s3.create_multipart_upload(Bucket=BUCKET, Key="x")["UploadId"]
    api.give_bucket_away(BUCKET)
    asks: tuple[Callable[[], object], ...] = (
        lambda: s3.upload_part(Bucket=BUCKET, Key="x", UploadId=begun, PartNumber=1, Body=b"x"),
        lambda: s3.abort_multipart_upload(Bucket=BUCKET, Key="x", UploadId=begun),
        lambda: s3.list_objects_v2(Bucket=BUCKET),
        lambda: s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "x"}]}),
    )
    for ask in asks:
        with pytest.raises(s3.exceptions.ClientError, match="AccessDenied"):
            ask()


def test_a_provider_s_own_ways_to_its_bucket_say_it(aws: AwsWorld) -> None:
    """For results, for the agent that a machine starts from and for data; the address that machines get does, too."""
    (aws.folder / "set").mkdir()
    (aws.folder / "set" / "a.txt").write_bytes(b"a")
    backing = aws.backing()
    store, data = backing.store, backing.data
    assert store is not None
    assert data is not None
    assert f"owner={ACCOUNT}" in store.url
    aws.api.give_bucket_away("kedge-test")
    asks: tuple[Callable[[], object], ...] = (
        lambda: store.manifest(RUN),
        lambda: backing.provider.create(aws.order()),
        lambda: data.put_data(DataMount(source=str(aws.folder / "set"), target="set"), lambda _done, _total: None),
    )
    for ask in asks:
        with pytest.raises(KedgeError) as caught:
            ask()
        assert "isn't this account's (any more)" in caught.value.why


def test_a_bootstrap_takes_no_bucket_into_which_a_stranger_lets_everybody(api: Box, session: AwsSession) -> None:
    """That it may be looked into doesn't make it this account's."""
    api.give_bucket_away(BUCKET)
    template = resource("infra", "aws", "account.yaml").read_text()
    with pytest.raises(BadRequestError, match=f"{BUCKET} is taken"):
        plan_account(session, template, AccountSettings(bucket=BUCKET), SystemClock())


def test_a_removal_deletes_nothing_in_a_strangers_bucket(aws: AwsWorld) -> None:
    """Neither where the name was lost before it was planned, nor since."""
    aws.api.client("s3").put_object(Bucket="kedge-test", Key="runs/x", Body=b"x")
    planned = plan_removal(AwsSession())
    assert planned is not None
    aws.api.give_bucket_away("kedge-test")
    aws.api.reset_calls()
    with pytest.raises(KedgeError, match="can't be read"):
        plan_removal(AwsSession())
    with pytest.raises(KedgeError, match="can't be removed"):
        remove_account(AwsSession(), planned, SystemClock(), delete_data=True)
    assert {call.status for call in aws.api.calls("s3")} == {403}


def test_the_machine_is_told_whose_the_bucket_must_be(session: AwsSession) -> None:
    """In the address of its store."""
    assert f"owner={ACCOUNT}" in bucket_of(own_s3(session, ACCOUNT), BUCKET, owner=ACCOUNT).url


def test_the_machine_is_told_where_other_runs_have_its_role(aws: AwsWorld) -> None:
    """What they write there is nothing that it may run."""
    share_role(aws.api)
    store = aws.backing().store
    assert store is not None
    assert "&shared=1" in store.url


def test_a_run_with_a_role_of_its_own_shares_its_place_with_nobody(aws: AwsWorld) -> None:
    """Which the machine is told as well."""
    store = aws.backing().store
    assert store is not None
    assert "shared" not in store.url


def test_a_new_bucket_gets_no_name_with_dots() -> None:
    """TLS could not verify it (fact: s3-dots)."""
    with pytest.raises(BadRequestError, match="dots") as caught:
        resolve_settings(None, AccountSettings(bucket="my.bucket"), default_bucket="kedge-1-eu")
    assert "dashes" in caught.value.fix
