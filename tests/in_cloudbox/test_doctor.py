"""`kedge doctor --provider ...` at both clouds: clocks, cached prices, and the output."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.probing import look_at_clock
from orchestrator.core.checkup import Verdict
from orchestrator.core.errors import UnreachableError
from tests.cloudbox.aws.box import Box
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.in_cloudbox.checkups import H100, T4, check_up, do_environ
from tests.support.laptop import Laptop


class WrongClock(SystemClock):
    """A computer's clock that is ahead."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead


def test_a_wrong_clock_is_found_at_both_clouds(
    enforced: Box, do_api: DigitalOceanBox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ten minutes ahead: signatures are refused, and deadlines come too early. fact: aws-signature-age."""
    for name, value in enforced.env.items():
        monkeypatch.setenv(name, value)
    for provider, environ, wish in (("aws", {}, T4), ("do", do_api.environ, H100)):
        failed = check_up(tmp_path, provider, environ, wish, clock=WrongClock(timedelta(minutes=10)))["clock"]
        assert failed.verdict is Verdict.FAILED
        assert "ahead" in failed.found
        assert "timedatectl" in failed.fix


def test_a_clock_that_is_slightly_wrong_or_unknown_is_reported(do_api: DigitalOceanBox) -> None:
    """Signatures are accepted then, but deadlines are a little off; without an answer, the network is at fault."""
    url, ca_file = f"{do_api.endpoint}/v2/account", str(do_api.ca_file)
    for minutes, said in ((2, "ahead"), (-2, "behind")):
        verdict, found, fix = look_at_clock(url, WrongClock(timedelta(minutes=minutes)), ca_file=ca_file)
        assert verdict is Verdict.WARNING
        assert said in found
        assert "timedatectl" in fix
    assert look_at_clock(url, WrongClock(timedelta(minutes=-6)), ca_file=ca_file)[0] is Verdict.FAILED
    with pytest.raises(UnreachableError) as nobody:
        look_at_clock("http://127.0.0.1:9", SystemClock())
    assert nobody.value.fix == "check the network"


def test_the_command_exits_with_1_if_a_launch_would_fail(laptop: Laptop, do_api: DigitalOceanBox) -> None:
    """Each line has its fix."""
    laptop.extra_env |= do_environ(do_api)
    assert "the token has the scopes" in laptop.kedge("doctor", "--provider", "do", "--gpu", "h100")
    laptop.extra_env |= do_environ(do_api, without="droplet:create")
    said = laptop.kedge("doctor", "--provider", "do", code=1)
    (line,) = (line for line in said.splitlines() if line.startswith("!!  permissions"))
    assert line.endswith("make a token with the scopes that docs/digitalocean.md lists")
    found = {check["name"]: check["verdict"] for check in laptop.json("doctor", "--provider", "do", code=1)}
    assert (found["permissions"], found["credentials"]) == ("failed", "ok")
    laptop.kedge("doctor", "--provider", "gcp", code=2)
    assert "do" in laptop.errors
