"""The parameter store: what a value may be like, the account's own list, and parameters that appear late."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from moto.core.utils import unix_time
from moto.ssm.models import Parameter, ssm_backends
from werkzeug.wrappers import Response

from tests.cloudbox.aws.wire.answers import AwsError, json_answer
from tests.cloudbox.aws.wire.call import Call
from tests.cloudbox.aws.wire.moto_state import ACCOUNT

APPEARS_IN_SECONDS = 1.0
_MOST_BYTES = 4096
_PAGE = 10


def check(call: Call) -> None:
    """Refuse a value that is too long for a standard parameter, or names others.

    fact: ssm-standard-parameters, fact: ssm-values

    Raises:
        AwsError: the value breaks one of these rules.
    """
    value = str(call.params.get("Value", ""))
    if len(value.encode()) > _MOST_BYTES and call.params.get("Tier", "Standard") == "Standard":
        raise AwsError("ValidationException", "Standard tier parameters support a maximum of 4096 characters.")
    if re.search(r"\{\{.*\}\}", value, re.DOTALL):
        raise AwsError("ValidationException", f"Parameter value: {value} can't contain {{{{}}}}.")


def describe(call: Call) -> Response:
    """List the account's own parameters below a path; moto fails when it comes to AWS's, which AWS doesn't list.

    Pages are cut before the filter: they may be empty, with more to come. fact: ssm-appears-late, fact: ssm-rates

    Raises:
        AwsError: it isn't such a request.
    """
    filters = call.params.get("ParameterFilters") or []
    if [(each["Key"], each.get("Option")) for each in filters] not in ([], [("Path", "Recursive")]):
        raise AwsError("ValidationException", "the box knows the filter Path with the option Recursive alone")
    paths = [f"{path.rstrip('/')}/" for each in filters for path in each["Values"]] or ["/"]
    versions = dict.items(ssm_backends[ACCOUNT][call.region]._parameters)
    own = [found[-1] for name, found in versions if found and not name.startswith("/aws/")]
    first, size = int(call.params.get("NextToken") or 0), int(call.params.get("MaxResults") or _PAGE)
    more = {"NextToken": str(first + size)} if len(own) > first + size else {}
    page = [each for each in own[first : first + size] if _is_old(each)]
    shown = [each for each in page if any(each.name.startswith(path) for path in paths)]
    return json_answer({"Parameters": [_metadata(each) for each in shown], **more})


def hide_new(call: Call, answer: Response) -> Response:
    """Answer that a parameter doesn't exist which was created a moment ago. fact: ssm-appears-late."""
    if (call.service, call.action, answer.status_code) != ("ssm", "GetParameters", 200):
        return answer
    content: dict[str, Any] = json.loads(answer.get_data())
    known = ssm_backends[ACCOUNT][call.region]._parameters
    late = [each for each in content["Parameters"] if each["Name"].startswith("/kedge/")]
    late = [each for each in late if not _is_old(known[each["Name"]][0])]
    if not late:
        return answer
    content["Parameters"] = [each for each in content["Parameters"] if each not in late]
    content["InvalidParameters"] = [*content["InvalidParameters"], *(each["Name"] for each in late)]
    return json_answer(content)


def _is_old(parameter: Parameter) -> bool:
    return time.time() - unix_time(parameter.last_modified_date) >= APPEARS_IN_SECONDS


def _metadata(parameter: Parameter) -> dict[str, Any]:
    at = unix_time(parameter.last_modified_date)
    kind = parameter.parameter_type
    return {"Name": parameter.name, "Type": kind, "LastModifiedDate": at, "Version": parameter.version}
