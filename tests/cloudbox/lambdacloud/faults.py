"""Lambda's own faults besides those of every box: what a launch becomes, and ignored terminations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tests.cloudbox.lambdacloud.errors import envelope
from tests.cloudbox.lambdacloud.rates import LAUNCH
from tests.cloudbox.lambdacloud.state import Status
from tests.cloudbox.rest.faults import Fault, FaultBook

TERMINATE = ("POST", "/api/v1/instance-operations/terminate")


@dataclass(slots=True, kw_only=True)
class LambdaFault(Fault):
    """A fault; errors have one of Lambda's codes.

    More effects: `becomes` (some seconds after a launch, the instance gets another status), `stuck` (it stays booting),
    `ignored` and `omitted` (a termination is answered with 200 but not carried out; the answer lists the instance as
    terminating, or doesn't list it).
    """

    own_effects: ClassVar[frozenset[str]] = frozenset({"becomes", "stuck", "ignored", "omitted"})
    code: str = "global/internal-error"
    becomes: Status = "terminated"

    def describe(self) -> dict[str, Any]:
        """Return the error's envelope."""
        return envelope(self.code, self.message, "Try again later")


class LambdaFaults(FaultBook[LambdaFault]):
    """The ordered faults."""

    def __init__(self) -> None:
        super().__init__(LambdaFault)

    def fail_html(self, method: str, path: str, *, status: int = 502, times: int | None = 1) -> None:
        """Answer with an HTML page of a proxy in front of the API. fact: lambda-502-on-polls."""
        text = f"<html><body><h1>{status} Bad Gateway</h1></body></html>"
        self.fail_next(method, path, status=status, text=text, headers={"Content-Type": "text/html"}, times=times)

    def refuse_rate(self, *, times: int | None = 1, retry_after: int | None = None) -> None:
        """Answer the next calls as if there had been too many."""
        headers = {"Content-Type": "text/plain; charset=UTF-8"}
        headers |= {} if retry_after is None else {"Retry-After": str(retry_after)}
        self.fail_next("*", "*", status=429, text="error code: 1015\n", headers=headers, times=times)

    def block(self, method: str, path: str, number: int = 1020, *, times: int | None = 1) -> None:
        """Answer with 403 and a Cloudflare error number, which doesn't mean that the key is wrong."""
        headers = {"Content-Type": "text/plain; charset=UTF-8"}
        self.fail_next(method, path, status=403, text=f"error code: {number}\n", headers=headers, times=times)

    def redirect(self, method: str, path: str, location: str, *, times: int | None = 1) -> None:
        """Answer with 301, as the old host sometimes does. fact: lambda-old-host."""
        self.fail_next(method, path, status=301, text="", headers={"Location": location}, times=times)

    def empty_answer(self, method: str, path: str, *, after_effect: bool = True, times: int | None = 1) -> None:
        """Answer with 200 and an empty body, by default after the call was carried out."""
        self.fail_next(method, path, status=200, text="", after_effect=after_effect, times=times)

    def change_launched(self, becomes: Status, *, seconds: float = 0, times: int | None = 1) -> None:
        """Accept the next launches; after some seconds their instances get this status."""
        how: dict[str, Any] = {"becomes": becomes, "seconds": seconds, "times": times}
        self.order(LambdaFault(method=LAUNCH[0], path=LAUNCH[1], effect="becomes", **how))

    def keep_booting(self, *, times: int | None = 1) -> None:
        """Leave the instances of the next launches in the status booting."""
        self.order(LambdaFault(method=LAUNCH[0], path=LAUNCH[1], effect="stuck", times=times))

    def ignore_terminations(self, *, times: int | None = 1, is_listed: bool = True) -> None:
        """Accept the next terminations without carrying them out. fact: lambda-accepted-is-not-done."""
        effect = "ignored" if is_listed else "omitted"
        self.order(LambdaFault(method=TERMINATE[0], path=TERMINATE[1], effect=effect, times=times))
