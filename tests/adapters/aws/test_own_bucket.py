"""kedge neither reads nor writes a bucket whose name another account has taken over."""

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


def test_every_request_names_the_bucket_s_expected_owner(api: Box, session: AwsSession, tmp_path: Path) -> None:
    """The other account admits everybody. S3 itself refuses, because each request names the expected owner.

    This includes multipart uploads, listings and deletions.
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


def test_every_operation_that_can_name_the_bucket_s_owner_does(api: Box, session: AwsSession) -> None:
    """This includes the requests inside a transfer, and operations that a later version of the SDK adds."""
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


def test_the_provider_names_the_bucket_s_owner_wherever_it_uses_the_bucket(aws: AwsWorld) -> None:
    """For results, for the agent that a machine downloads, for data, and in the URL that machines get."""
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


def test_a_bootstrap_does_not_adopt_another_account_s_open_bucket(api: Box, session: AwsSession) -> None:
    """Access to a bucket does not prove that this account owns it."""
    api.give_bucket_away(BUCKET)
    template = resource("infra", "aws", "account.yaml").read_text()
    with pytest.raises(BadRequestError, match=f"{BUCKET} is taken"):
        plan_account(session, template, AccountSettings(bucket=BUCKET), SystemClock())


def test_a_removal_deletes_nothing_in_a_strangers_bucket(aws: AwsWorld) -> None:
    """Whether the name was lost before the removal was planned or after."""
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


def test_the_machine_is_told_the_bucket_s_expected_owner(session: AwsSession) -> None:
    """The owner is part of the store's URL."""
    assert f"owner={ACCOUNT}" in bucket_of(own_s3(session, ACCOUNT), BUCKET, owner=ACCOUNT).url


def test_the_machine_is_told_that_other_runs_share_its_role(aws: AwsWorld) -> None:
    """It must not execute what they write to the bucket."""
    share_role(aws.api)
    store = aws.backing().store
    assert store is not None
    assert "&shared=1" in store.url


def test_a_run_with_its_own_role_is_told_that_it_shares_nothing(aws: AwsWorld) -> None:
    """The store's URL then has no `shared` mark."""
    store = aws.backing().store
    assert store is not None
    assert "shared" not in store.url


def test_a_new_bucket_name_has_no_dots() -> None:
    """TLS could not verify such a host name (fact: s3-dots)."""
    with pytest.raises(BadRequestError, match="dots") as caught:
        resolve_settings(None, AccountSettings(bucket="my.bucket"), default_bucket="kedge-1-eu")
    assert "dashes" in caught.value.fix
