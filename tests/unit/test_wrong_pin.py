"""The self-test's look at pinned keys, at a real sshd."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ssh.failures import HostKeyError
from orchestrator.adapters.ssh.host_key import make_host_key
from orchestrator.adapters.ssh.ssh_files import SshFiles
from orchestrator.app.selftest import probes
from orchestrator.app.selftest.probes import try_wrong_pin
from orchestrator.core.errors import KedgeError, UnreachableError
from tests.adapters.remote.sshd import running_sshd
from tests.support.ports import free_port


def test_another_host_key_is_refused_and_silence_is_no_proof(tmp_path: Path) -> None:
    """A machine that doesn't answer at all has refused nothing: the check fails then."""
    places = SshFiles(pins=tmp_path / "pins", runtime=tmp_path)
    with running_sshd(tmp_path / "sshd") as server:
        try_wrong_pin(server.address, SystemClock(), places)
        nobody = replace(server.address, port=free_port())
        with pytest.raises(UnreachableError) as caught:
            try_wrong_pin(nobody, SystemClock(), places)
    assert not isinstance(caught.value, HostKeyError)


def test_a_key_that_is_accepted_though_another_was_pinned_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if SSH didn't compare keys: the key that is drawn as a wrong one is the machine's own."""
    places = SshFiles(pins=tmp_path / "pins", runtime=tmp_path)
    with running_sshd(tmp_path / "sshd") as server:
        own = replace(make_host_key(), public=server.address.host_key)
        monkeypatch.setattr(probes, "make_host_key", lambda: own)
        with pytest.raises(KedgeError, match="was accepted"):
            try_wrong_pin(server.address, SystemClock(), places)
