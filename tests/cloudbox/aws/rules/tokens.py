"""Client tokens: the same call twice has one effect."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from werkzeug.wrappers import Response

from tests.cloudbox.aws.wire import moto_state
from tests.cloudbox.aws.wire.answers import AwsError
from tests.cloudbox.aws.wire.call import Call

IDEMPOTENT = frozenset({"RunInstances", "CreateVolume"})
"""What moto does again when it is asked again."""

_INSTANCE = re.compile(r"<instanceId>(i-[0-9a-f]+)</instanceId>")


class TokenBook:
    """The tokens that were used, with what they were used for and what was answered: in each zone for itself.

    fact: aws-client-token
    """

    def __init__(self) -> None:
        self._used: dict[tuple[str, str, str, str], tuple[Mapping[str, str], Response]] = {}

    def once(self, call: Call, act: Callable[[], Response]) -> Response:
        """Act, unless this was done before: then answer as then.

        A call that failed doesn't use its token up. Callers hold the box's lock.

        Raises:
            AwsError: IdempotentParameterMismatch, the token was used for something else; IdempotentInstanceTerminated,
                for an instance that has ended.
        """
        token = call.params.get("ClientToken")
        if not token:
            return act()
        zone = moto_state.zone_of_launch(call) or call.params.get("AvailabilityZone") or ""
        key = (call.region, str(zone), call.action, str(token))
        if key in self._used:
            params, answer = self._used[key]
            if params != call.params:
                raise AwsError(
                    "IdempotentParameterMismatch",
                    f"The client token {token} has already been used with other parameters",
                )
            if _has_ended(answer):
                raise AwsError(
                    "IdempotentInstanceTerminated",
                    "The client token you have provided is associated with a terminated instance.",
                )
            return _copy(answer)
        answer = act()
        if answer.status_code < 300:
            self._used[key] = (call.params, _copy(answer))
        return answer

    def reset(self) -> None:
        """Forget all tokens."""
        self._used.clear()


def _has_ended(answer: Response) -> bool:
    made = _INSTANCE.search(answer.get_data(as_text=True))
    return made is not None and moto_state.find_instance(made[1])[1].state == "terminated"


def _copy(answer: Response) -> Response:
    return Response(answer.get_data(), status=answer.status_code, headers=answer.headers.to_wsgi_list())
