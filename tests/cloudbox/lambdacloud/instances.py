"""Requests for instances: launch, list, show, rename, restart and terminate."""

from __future__ import annotations

from typing import Any

from tests.cloudbox.lambdacloud.cloud import Cloud
from tests.cloudbox.lambdacloud.errors import LambdaError, invalid
from tests.cloudbox.lambdacloud.launching import launch
from tests.cloudbox.lambdacloud.state import Instance
from tests.cloudbox.lambdacloud.views import is_endable, show_instance
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/api/v1")


@routes.on("POST", "/instance-operations/launch")
def launch_instance(cloud: Cloud, call: Call) -> Answer:
    """Launch one instance; the answer contains only its id. fact: lambda-launch-answers-an-id."""
    instance = launch(cloud.account, cloud.addresses, call.body)
    return Answer(body={"data": {"instance_ids": [instance.id]}})


@routes.on("GET", "/instances")
def list_instances(cloud: Cloud, call: Call) -> Answer:
    """List the instances of all regions, other people's too: there is no filter. fact: lambda-no-filters."""
    if call.query.keys() - {"cluster_id", "page_token"}:
        raise invalid("unknown query parameter")
    shown = [show_instance(cloud.account, one) for one in cloud.account.listed()]
    return Answer(body={"data": [] if call.query.get("cluster_id") else shown})


@routes.on("GET", "/instances/{id}")
def get_instance(cloud: Cloud, call: Call) -> Answer:
    """Show an instance."""
    return Answer(body={"data": show_instance(cloud.account, cloud.account.instance(call.params["id"]))})


@routes.on("POST", "/instances/{id}")
def rename_instance(cloud: Cloud, call: Call) -> Answer:
    """Rename an instance; tags can't be changed. fact: lambda-tags-at-launch-only."""
    if call.body.keys() - {"name"}:
        raise invalid("only the name can be changed")
    instance = cloud.account.instance(call.params["id"])
    instance.name = call.body.get("name", instance.name)
    return Answer(body={"data": show_instance(cloud.account, instance)})


@routes.on("POST", "/instance-operations/terminate")
def terminate_instances(cloud: Cloud, call: Call) -> Answer:
    """Terminate all named instances, or none if one of them can't be terminated. fact: lambda-terminate."""
    account = cloud.account
    wanted = [account.instance(each) for each in call.body["instance_ids"]]
    if not wanted:
        raise invalid("no instances")
    for instance in wanted:
        _check_end(cloud, instance)
    now = account.clock.now()
    for instance in wanted:
        if instance.ended_at is None:
            instance.ended_at, instance.gone_at = now, now + account.settings.ending_seconds
    return answer_terminated(cloud, wanted)


def pretend_termination(cloud: Cloud, call: Call, *, is_listed: bool) -> Answer:
    """Answer as if the instances had been terminated."""
    wanted = [cloud.account.instance(each) for each in call.body["instance_ids"]]
    return answer_terminated(cloud, wanted if is_listed else [])


def answer_terminated(cloud: Cloud, instances: list[Instance]) -> Answer:
    """Answer with instances as terminating."""
    shown = [{**show_instance(cloud.account, one), "status": "terminating"} for one in instances]
    return Answer(body={"data": {"terminated_instances": shown}})


@routes.on("POST", "/instance-operations/restart")
def restart_instances(cloud: Cloud, call: Call) -> Answer:
    """Restart all named instances, or none."""
    wanted = [cloud.account.instance(each) for each in call.body["instance_ids"]]
    if any(cloud.account.status(one) in ("booting", "terminating", "terminated") for one in wanted):
        raise LambdaError("global/conflict")
    for instance in wanted:
        instance.powered = True
        instance.boots += 1
    shown: list[dict[str, Any]] = [show_instance(cloud.account, one) for one in wanted]
    return Answer(body={"data": {"restarted_instances": shown}})


def _check_end(cloud: Cloud, instance: Instance) -> None:
    settings = cloud.account.settings
    if not is_endable(cloud.account, instance):
        # The reason is documented, but the answer to such a termination isn't.
        code = "global/invalid-parameters" if settings.too_early == 400 else "global/conflict"
        raise LambdaError(
            code, "vm-has-not-launched", status=settings.too_early, is_described=settings.too_early == 400
        )
    # fact: lambda-second-terminate
    if instance.ended_at is not None and settings.second_termination != 200:
        raise LambdaError("global/unknown", status=settings.second_termination)
