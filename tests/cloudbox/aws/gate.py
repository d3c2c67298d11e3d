"""What every call of an AWS API passes before and after moto."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from werkzeug.wrappers import Response

from tests.cloudbox.aws.cloud import Cloud
from tests.cloudbox.aws.faults import Fault
from tests.cloudbox.aws.life import identity, schedules
from tests.cloudbox.aws.model.refusing import check_request
from tests.cloudbox.aws.permissions import guard, simulation
from tests.cloudbox.aws.rules import disk_speed, images, launching, parameters, pricing_api, restoring
from tests.cloudbox.aws.rules.tokens import IDEMPOTENT
from tests.cloudbox.aws.wire import zone_ids
from tests.cloudbox.aws.wire.answers import AwsError, error
from tests.cloudbox.aws.wire.call import Call, Environ, parse_call

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse


_CHECKS: Mapping[str, Callable[[Call], None]] = {
    "AttachVolume": launching.check_attachment,
    "CreateSecurityGroup": launching.check_group,
    "CreateSchedule": schedules.check_schedule,
    "CreateVolume": restoring.check,
    "PutParameter": parameters.check,
    "RunInstances": disk_speed.check,
    "UpdateSchedule": schedules.check_schedule,
}
"""What a call breaks, wherever it comes from."""


class Gate:
    """The WSGI application of the box."""

    def __init__(self, cloud: Cloud, moto: DomainDispatcherApplication) -> None:
        self._cloud = cloud
        self._moto = moto
        self._own: dict[tuple[str, str], Callable[[Call], Response]] = {
            ("pricing", "GetProducts"): pricing_api.get_products,
            ("servicequotas", "GetServiceQuota"): cloud.quotas.get,
            ("servicequotas", "ListServiceQuotas"): cloud.quotas.list,
            ("ec2", "DescribeSpotPriceHistory"): cloud.spot.describe_history,
            ("ec2", "GetSpotPlacementScores"): cloud.spot.score_zones,
            ("ec2", "CreatePlacementGroup"): cloud.placements.create,
            ("ec2", "DeletePlacementGroup"): cloud.placements.delete,
            ("ec2", "DescribePlacementGroups"): cloud.placements.describe,
            ("iam", "SimulatePrincipalPolicy"): simulation.simulate,
            ("ssm", "DescribeParameters"): parameters.describe,
        }

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request; a dropped answer is a connection that ends without a byte."""
        call = parse_call(environ)
        entry = self._cloud.calls.record(call)
        fault = self._cloud.faults.take(call)
        if fault:
            entry["fault"] = fault.code if fault.effect == "error" else fault.effect
            time.sleep(fault.delay_seconds)
        if fault and fault.effect == "drop_before":
            raise ConnectionAbortedError
        answer = self._answer(call, fault, environ, entry)
        entry["status"] = answer.status_code
        if fault and fault.effect == "drop":
            answer.get_data()
            raise ConnectionAbortedError
        return answer(environ, start_response)

    def _answer(self, call: Call, fault: Fault | None, environ: Environ, entry: dict[str, Any]) -> Response:
        try:
            self._cloud.closed.check(call)
            if fault and fault.effect == "error":
                raise fault.error()
            if identity.is_enforced():
                entry["needs"] = guard.check(call, environ)
            return self._carry_out(call, environ)
        except AwsError as problem:
            return error(call, problem)

    def _carry_out(self, call: Call, environ: Environ) -> Response:
        check_request(call)
        if own := self._own.get((call.service, call.action)):
            return own(call)
        if call.service == "s3" and (refused := self._check_bucket(environ)):
            return refused
        call = zone_ids.by_name(call, environ)
        if call.service in ("ec2", "ssm", "cloudformation"):
            # Moto makes an image from a volume that it then deletes: the meter must not look in between.
            with self._cloud.lock:
                images.publish(call.region)
        if call.service == "cloudformation":
            _complete_change_sets()
        if check := _CHECKS.get(call.action):
            check(call)
        if call.changes_machines:
            return self._change_machines(call, environ)
        if call.service == "ec2":
            # Moto has no lock of its own: while it lists instances, others may be launched or end.
            with self._cloud.lock:
                return self._forward(environ)
        return parameters.hide_new(call, self._forward(environ))

    def _check_bucket(self, environ: Environ) -> Response | None:
        headers = {name[5:].replace("_", "-").lower(): text for name, text in environ.items() if name[:5] == "HTTP_"}
        path = f"{environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}"
        refused = self._cloud.buckets.check(environ["REQUEST_METHOD"], path, headers)
        if refused is None:
            return None
        body = f"<Error><Code>{refused.code}</Code><Message>{refused.message}</Message></Error>"
        answer = Response(body, status=refused.status, content_type="text/xml")
        answer.headers["x-amz-bucket-region"] = refused.region
        return answer

    def _change_machines(self, call: Call, environ: Environ) -> Response:
        """Let moto change machines, one call after the other, and have the rest of the box follow."""
        with self._cloud.lock:
            try:
                if call.action in IDEMPOTENT:
                    return self._cloud.tokens.once(call, lambda: self._launch(call, environ))
                return self._forward(environ)
            finally:
                self._cloud.lifecycle.settle()

    def _launch(self, call: Call, environ: Environ) -> Response:
        if call.action != "RunInstances":
            answer = self._forward(environ)
            restoring.keep(call, answer.get_data(as_text=True))
            return answer
        launching.check_launch(call, self._cloud.quotas, self._cloud.spot)
        self._cloud.placements.check(call)
        answer = self._forward(environ)
        self._cloud.placements.keep(call, answer.get_data(as_text=True))
        disk_speed.keep(call, answer.get_data(as_text=True))
        return answer

    def _forward(self, environ: Environ) -> Response:
        return Response.from_app(self._moto, environ)


def _complete_change_sets() -> None:
    # Imported by the first stack: moto's CloudFormation knows all its services, and takes a second to load.
    from tests.cloudbox.aws.rules import change_sets

    change_sets.complete()
