"""Secrets of runs that start by themselves: stored for the run's own role alone, and deleted with the run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.adapters.providers.aws.record import Records
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.protocol.wire import BootOrder
from orchestrator.core.transfers import SecretOrder, SecretStore
from tests.adapters.aws.world import RUN, AwsWorld, set_up, share_role
from tests.cloudbox.aws.box import REGION, Box
from tests.cloudbox.aws.leftovers import leftovers, secrets_of
from tests.cloudbox.aws.rules.parameters import APPEARS_IN_SECONDS
from tests.support.waiting import wait_until

VALUES = {"HF_TOKEN": "hf_1", "EMPTY": "", "ODD": 'a "b" {{c}}\n\u00fc'}
PATH = f"/kedge/runs/{RUN}/m1"
ORDER = SecretOrder(run_id=RUN, machine_id=f"{RUN}-m1", values=VALUES, tags=(("team", "vision"),))
BOOT = BootOrder(secrets=tuple(VALUES), secrets_url=f"ssm://{REGION}{PATH}")


def store_of(aws: AwsWorld) -> SecretStore:
    """Open the store as the next command does."""
    secrets = aws.backing().secrets
    assert secrets is not None
    return secrets


def stored(aws: AwsWorld) -> dict[str, Any]:
    """Read the values as an administrator; the newest take a second to appear."""
    names = [f"{PATH}/{name}" for name in VALUES]
    ssm = aws.api.client("ssm")
    wait_until(lambda: not ssm.get_parameters(Names=names)["InvalidParameters"])
    found = ssm.get_parameters(Names=names, WithDecryption=True)["Parameters"]
    assert {each["Type"] for each in found} == {"SecureString"}
    return {each["Name"].rpartition("/")[2]: json.loads(each["Value"]) for each in found}


def test_secrets_are_stored_and_deleted_with_their_run(aws: AwsWorld) -> None:
    """Each is an encrypted parameter with the run's tags; JSON writes even those values that the store refuses."""
    assert store_of(aws).place(RUN) == f"AWS's parameter store in {REGION} (/kedge/runs/{RUN}/)"
    url = store_of(aws).put(ORDER)
    assert url.partition("?")[0] == f"ssm://{REGION}{PATH}"
    assert stored(aws) == VALUES
    tags = aws.api.client("ssm").list_tags_for_resource(ResourceType="Parameter", ResourceId=f"{PATH}/HF_TOKEN")
    assert {tag["Key"]: tag["Value"] for tag in tags["TagList"]} == {"team": "vision", "kedge-run": RUN}
    aws.provider().create(aws.order(boot=BOOT))
    aws.provider().destroy(f"{RUN}-m1")
    lines = aws.provider().release(RUN)
    assert f"deleted 3 secrets below /kedge/runs/{RUN}/" in lines
    assert leftovers(aws.api) == []


def test_the_run_s_own_record_alone_is_enough_to_delete_secrets_that_aws_does_not_list_yet(aws: AwsWorld) -> None:
    """A launch that fails right after it has stored them removes them at once."""
    store_of(aws).put(ORDER)
    aws.api.reset_calls()
    assert aws.provider().release(RUN) == [f"deleted 3 secrets below /kedge/runs/{RUN}/"]
    time.sleep(APPEARS_IN_SECONDS)
    assert secrets_of(aws.api) == []


def test_names_are_recorded_before_anything_is_stored(aws: AwsWorld) -> None:
    """A command that is killed in between has them to delete; a value is in no record."""
    aws.api.fail_next("PutParameter", "InternalServerError", times=None, status=500)
    with pytest.raises(KedgeError, match="the secret HF_TOKEN can't be stored"):
        store_of(aws).put(ORDER)
    assert set(Records(aws.folder / "aws").run(RUN).secrets.parameters) == {f"{PATH}/{name}" for name in VALUES}
    texts = [path.read_text() for path in aws.folder.rglob("*") if path.is_file()]
    assert not [text for text in texts if "hf_1" in text]


def test_a_lost_answer_stores_nothing_twice(aws: AwsWorld) -> None:
    """The request is repeated: the parameter exists, and is written again without its tags. fact: ssm-overwrite."""
    aws.api.drop_next("PutParameter")
    store_of(aws).put(ORDER)
    assert stored(aws) == VALUES


def test_a_busy_parameter_store_is_waited_for(aws: AwsWorld) -> None:
    """It takes three writes in a second from the whole account: the SDK's own retries may not be enough."""
    aws.api.fail_next("PutParameter", "ThrottlingException", times=5)
    store_of(aws).put(ORDER)
    assert stored(aws) == VALUES


def test_an_account_with_many_parameters_is_searched_with_few_requests(aws: AwsWorld) -> None:
    """The store's pages count what isn't kedge's, too."""
    ssm = aws.api.client("ssm")
    for number in range(60):
        ssm.put_parameter(Name=f"/app/{number}", Value="x", Type="String")
    store_of(aws).put(ORDER)
    time.sleep(APPEARS_IN_SECONDS)
    aws.api.reset_calls()
    left = [left for left in aws.provider().sweep().leftovers if left.kind == "secret"]
    assert {each.name for each in left} == {f"{PATH}/{name}" for name in VALUES}
    assert len(aws.api.calls(action="DescribeParameters")) == 2


def test_a_value_that_is_too_long_is_refused_before_anything_is_stored(aws: AwsWorld) -> None:
    """The error names the variable, and doesn't quote the value."""
    with pytest.raises(BadRequestError) as refused:
        store_of(aws).put(replace(ORDER, values={"SHORT": "x", "LONG": "secret" * 1000}))
    assert refused.value.what == "the value of LONG is too long for AWS's parameter store"
    assert "secretsecret" not in str(refused.value)
    assert aws.actions()["PutParameter"] == 0


def test_a_refusal_does_not_quote_the_value(aws: AwsWorld) -> None:
    """AWS's message may."""
    aws.api.fail_next("PutParameter", "ValidationException", message="Value 'hf_1' failed to satisfy a constraint")
    with pytest.raises(KedgeError) as refused:
        store_of(aws).put(ORDER)
    assert refused.value.why == "AWS answered PutParameter with ValidationException"
    assert refused.value.__cause__ is None


def test_secrets_are_refused_where_all_runs_have_one_role(aws: AwsWorld) -> None:
    """Any run's machines could read them. The role may have been made since this computer has asked last."""
    assert store_of(aws).place(RUN)
    share_role(aws.api)
    aws.api.fail_next("CreateRole", "AccessDenied", status=403)
    with pytest.raises(BadRequestError, match="secrets can't be stored"):
        aws.provider().create(aws.order(boot=BOOT))
    other = AwsWorld(api=aws.api, folder=aws.folder / "other")
    refusing: tuple[Callable[[], str], ...] = (
        lambda: store_of(other).place(RUN),
        lambda: store_of(other).put(ORDER),
    )
    for refuse in refusing:
        with pytest.raises(BadRequestError) as refused:
            refuse()
        assert "all runs of this account have one role" in refused.value.why
        assert "start: ssh" in refused.value.fix
    assert aws.actions()["PutParameter"] == aws.actions()["RunInstances"] == 0


def test_an_account_of_an_earlier_kedge_is_bootstrapped_again(aws: AwsWorld) -> None:
    """Its boundary doesn't let roles read parameters. The same holds for a cached answer from before the bootstrap."""
    stack = aws.api.client("cloudformation")
    template = stack.get_template(StackName="kedge-account")["TemplateBody"]
    text = template if isinstance(template, str) else json.dumps(template)
    stack.delete_stack(StackName="kedge-account")
    earlier = text.replace("SecretsPath", "Unknown")
    stack.create_stack(StackName="kedge-account", TemplateBody=earlier, Capabilities=["CAPABILITY_NAMED_IAM"])
    with pytest.raises(BadRequestError) as refused:
        store_of(aws).place(RUN)
    assert "kedge bootstrap --provider aws" in refused.value.fix
    assert aws.provider().sweep().leftovers == ()
    assert aws.actions()["DescribeParameters"] == 0
    stack.update_stack(StackName="kedge-account", TemplateBody=text, Capabilities=["CAPABILITY_NAMED_IAM"])
    assert store_of(aws).place(RUN)


def test_a_plan_needs_no_account_and_storing_does(aws: AwsWorld) -> None:
    """Without a bootstrap, or with a network that is down, the plan names the place in general."""
    aws.api.client("cloudformation").delete_stack(StackName="kedge-account")
    assert store_of(aws).place(RUN) == "AWS's parameter store"
    with pytest.raises(BadRequestError, match="isn't set up for kedge"):
        store_of(aws).put(ORDER)


def test_a_sweep_from_another_computer_finds_secrets_by_their_path(aws: AwsWorld) -> None:
    """They name their run and their age; a release by that computer deletes them, and no other run's."""
    store_of(aws).put(ORDER)
    store_of(aws).put(replace(ORDER, run_id=f"{RUN}x", machine_id=f"{RUN}x-m1", values={"HF_TOKEN": "hf_2"}))
    wait_until(lambda: len(secrets_of(aws.api)) == 4)
    other = AwsWorld(api=aws.api, folder=aws.folder / "other").provider()
    found = [left for left in other.sweep().leftovers if left.kind == "secret"]
    assert {(left.name, left.run_id) for left in found} == {
        *((f"{PATH}/{name}", RUN) for name in VALUES),
        (f"/kedge/runs/{RUN}x/m1/HF_TOKEN", f"{RUN}x"),
    }
    assert all(left.created_at is not None and not left.usd_per_hour for left in found)
    other.release(RUN)
    assert secrets_of(aws.api) == [f"/kedge/runs/{RUN}x/m1/HF_TOKEN"]


def test_a_run_is_released_by_somebody_who_may_not_list_secrets(aws: AwsWorld) -> None:
    """The policy of an operator may be of an earlier kedge; what may be left is said, by a sweep, too."""
    aws.provider().create(aws.order())
    aws.provider().destroy(f"{RUN}-m1")
    other = AwsWorld(api=aws.api, folder=aws.folder / "other").provider()
    aws.api.fail_next("DescribeParameters", "AccessDeniedException", times=None)
    unseen = other.sweep().unseen
    assert [(part.may_bill, "the secrets of runs can't be listed" in part.what) for part in unseen] == [(False, True)]
    lines = other.release(RUN)
    aws.api.clear_faults()
    assert lines[0].startswith(f"kept secrets below /kedge/runs/{RUN}/, if there are any: AWS answered")
    assert leftovers(aws.api) == []


@pytest.fixture
def enforced(aws: AwsWorld) -> Iterator[AwsWorld]:
    """The account checks permissions once the test has set it up."""
    yield aws
    aws.api.enforce_iam(False)


def machine_client(api: Box, role: str) -> Any:
    """Return the parameter store as a machine with this role sees it."""
    arn = api.client("iam").get_role(RoleName=role)["Role"]["Arn"]
    keys = api.client("sts").assume_role(RoleArn=arn, RoleSessionName="i-1")["Credentials"]
    return api.client(
        "ssm",
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    )


def test_a_run_s_machines_can_read_its_own_secrets_and_no_others(enforced: AwsWorld) -> None:
    """Nor list, change or delete any; a run without secrets can't read its path either. fact: ssm-default-key."""
    aws, other = enforced, f"{RUN}x"
    store_of(aws).put(ORDER)
    store_of(aws).put(replace(ORDER, run_id=other, machine_id=f"{other}-m1"))
    aws.provider().create(aws.order(boot=BOOT))
    aws.provider().create(aws.order(id="plain-1-m1", run_id="plain-1"))
    stored(aws)
    clients = {run: machine_client(aws.api, f"kedge-run-{run}") for run in (RUN, "plain-1")}
    aws.api.enforce_iam()
    mine, foreign = f"{PATH}/HF_TOKEN", f"/kedge/runs/{other}/m1/HF_TOKEN"
    read = clients[RUN].get_parameters(Names=[mine], WithDecryption=True)["Parameters"]
    assert [json.loads(each["Value"]) for each in read] == ["hf_1"]
    refused = [
        lambda: clients[RUN].get_parameters(Names=[foreign], WithDecryption=True),
        lambda: clients[RUN].get_parameters(Names=[mine, foreign], WithDecryption=True),
        lambda: clients[RUN].get_parameters_by_path(Path=f"/kedge/runs/{RUN}", Recursive=True, WithDecryption=True),
        clients[RUN].describe_parameters,
        lambda: clients[RUN].put_parameter(Name=mine, Value='"x"', Type="SecureString", Overwrite=True),
        lambda: clients[RUN].delete_parameters(Names=[mine]),
        lambda: clients["plain-1"].get_parameters(Names=[mine], WithDecryption=True),
        lambda: clients["plain-1"].get_parameters(Names=["/kedge/runs/plain-1/m1/X"], WithDecryption=True),
    ]
    for call in refused:
        with pytest.raises(Exception, match="AccessDenied"):
            call()


def test_a_run_that_had_no_secrets_before_gets_the_permission_with_its_next_machine(enforced: AwsWorld) -> None:
    """Its role was made without it."""
    aws = enforced
    aws.provider().create(aws.order())
    aws.provider().destroy(f"{RUN}-m1")
    store_of(aws).put(ORDER)
    aws.provider().create(aws.order(2, boot=BOOT))
    stored(aws)
    client = machine_client(aws.api, f"kedge-run-{RUN}")
    aws.api.enforce_iam()
    assert client.get_parameters(Names=[f"{PATH}/HF_TOKEN"], WithDecryption=True)["Parameters"]


def test_the_role_of_all_runs_reads_no_secrets(api: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its policy is the boundary, which leaves parameters out in such an account."""
    for name, value in api.env.items():
        monkeypatch.setenv(name, value)
    set_up(api, RunRole="true")
    api.client("ssm").put_parameter(Name=f"{PATH}/HF_TOKEN", Value='"hf_1"', Type="SecureString")
    client = machine_client(api, "kedge-runs")
    api.enforce_iam()
    with pytest.raises(Exception, match="AccessDenied"):
        client.get_parameters(Names=[f"{PATH}/HF_TOKEN"], WithDecryption=True)
    api.enforce_iam(False)
