"""The folder of a local machine: quoted values, short socket paths, and what a crash leaves."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.providers.local.layout import quote, sockets_folder
from orchestrator.adapters.providers.local.provider import LocalProvider
from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import MachineState
from tests.adapters.local.box import Box

ID = "run-1a2b-m1"


@pytest.mark.parametrize("value", ['a"b', "a\nb"])
def test_a_value_that_would_break_sshds_configuration_is_refused(value: str) -> None:
    """A path can't become a directive of its own."""
    with pytest.raises(KedgeError, match="sshd's configuration"):
        quote(value)


def test_sockets_lie_in_a_short_folder(tmp_path: Path) -> None:
    """Below the runtime folder if that is short, else below /tmp. Each machine has its own folder, always the same."""
    short, long = Path("/run/user/1000/kedge"), tmp_path / ("x" * 100)
    one, two = Path("/state/machines/run-m1"), Path("/state/machines/run-m2")
    assert sockets_folder(short, one).parent == short
    assert sockets_folder(long, one).parent == Path("/tmp")
    assert all(len(os.fsencode(sockets_folder(place, one))) <= 70 for place in (short, long))
    assert sockets_folder(short, one) == sockets_folder(short, one) != sockets_folder(short, two)


def test_a_link_in_the_place_of_the_sockets_folder_is_replaced(box: Box) -> None:
    """Whoever opens tmux's socket can type into the machine, so the folder is private and never a link."""
    sockets = sockets_folder((box.base / "run").resolve(), box.folder(ID).root)
    sockets.parent.mkdir(exist_ok=True)
    sockets.symlink_to(box.base)
    box.provider().create(box.order(ID))
    assert not sockets.is_symlink()
    assert sockets.stat().st_mode & 0o777 == 0o700
    assert box.key.exists()


def test_a_folder_that_a_crash_left_half_made_is_made_again(box: Box) -> None:
    """Truncated records, and folders in the place of files, don't block it."""
    folder = box.folder(ID)
    (folder.root / "sshd_config").mkdir(parents=True)
    (folder.root / "provider.json").write_text('{"run_id": ')
    assert [machine.state for machine in box.provider().machines()] == [MachineState.UNKNOWN]
    assert box.provider().create(box.order(ID)).state is MachineState.READY


def test_a_failed_layout_leaves_nothing(box: Box) -> None:
    """The error says that a file is in the place of the runtime folder."""
    runtime = Path(tempfile.mkdtemp(prefix="kedge-test-")) / "file"
    runtime.touch()
    provider = replace_runtime(box, runtime)
    with pytest.raises(KedgeError, match="can't be laid out"):
        provider.create(box.order(ID))
    runtime.unlink()
    runtime.parent.rmdir()
    assert box.leftovers() == []


def replace_runtime(box: Box, runtime_dir: Path) -> LocalProvider:
    return LocalProvider(state_dir=box.state_dir, runtime_dir=runtime_dir, clock=SystemClock(), key_file=box.key)


def test_two_creations_at_once_make_one_machine(box: Box) -> None:
    """The second waits for the first and gets the same machine."""
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda _: box.provider().create(box.order(ID)), range(2)))
    assert made[0].address == made[1].address
    assert [machine.id for machine in box.provider().machines()] == [ID]
