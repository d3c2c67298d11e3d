"""Worker processes of a loader: started once, ended with the run, and of no influence on the samples."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from tests.support.waiting import wait_until
from trainer.base.errors import BadRequestError
from trainer.base.sources import Batch
from trainer.data.ahead import ReadAhead, take_one_ahead
from trainer.data.loader import BatchLoader

CPU = torch.device("cpu")


class Whose:
    """Samples that contain their index, their random draw, and the process that made them."""

    def __len__(self) -> int:
        return 24

    def sample(self, index: int, rng: np.random.Generator) -> Batch:
        return index, rng.random(), os.getpid()


class Ragged(Whose):
    """Samples of different lengths."""

    def sample(self, index: int, rng: np.random.Generator) -> Batch:  # noqa: ARG002
        return {"tokens": torch.zeros(index + 1), "label": index}


def read_epoch(loader: BatchLoader, epoch: int, *, first_step: int = 0) -> tuple[list[list[float]], set[int]]:
    """Read an epoch; return what its samples contain, and the processes that made them."""
    batches = list(loader.batches(epoch=epoch, batch_size=4, first_step=first_step))
    processes = {int(process) for batch in batches for process in batch[2]}
    return [[*batch[0].tolist(), *batch[1].tolist()] for batch in batches], processes


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def wait_until_ended(pids: Iterable[int]) -> None:
    wait_until(lambda: not any(is_running(pid) for pid in pids), seconds=30)


def test_workers_start_once_for_all_epochs_and_change_no_sample() -> None:
    """Epochs, a resumed one and one after an abandoned one have the same two processes, and one process's samples."""
    alone, loader = BatchLoader(Whose(), seed=5, device=CPU), BatchLoader(Whose(), seed=5, device=CPU, workers=2)
    first, workers = read_epoch(loader, 0)
    assert first == read_epoch(alone, 0)[0]
    assert len(workers) == 2
    next(loader.batches(epoch=1, batch_size=4))
    assert read_epoch(loader, 1, first_step=3) == (read_epoch(alone, 1)[0][3:], workers)
    loader.close()
    wait_until_ended(workers)
    assert read_epoch(loader, 0)[0] == first  # it may be used again
    loader.close()


def test_validation_uses_the_workers_of_the_validation_before() -> None:
    """Two passes over the whole source have the same processes, and count every sample once."""
    loader = BatchLoader(Whose(), seed=5, device=CPU, workers=2)
    passes = [list(loader.shares(per_device=5)) for _ in range(2)]
    loader.close()
    first, second = ({int(process) for batch, _ in shares for process in batch[2]} for shares in passes)
    assert first == second
    assert [index for batch, count in passes[1] for index in batch[0][:count].tolist()] == list(range(24))


def test_starting_workers_leaves_the_models_randomness_alone() -> None:
    """Neither torch's nor Python's nor NumPy's global generator is drawn from, also when an epoch is abandoned."""
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]  # the legacy tuple
    loader = BatchLoader(Whose(), seed=5, device=CPU, workers=1)
    next(loader.batches(epoch=0, batch_size=4))
    list(loader.batches(epoch=1, batch_size=4))
    loader.close()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[index]  # the legacy tuple


PROGRAM = """
import sys
import threading
from tests.trainer.test_data_workers import CPU, Whose, read_epoch
from trainer.data.loader import BatchLoader
loader = BatchLoader(Whose(), seed=5, device=CPU, workers=2)
for epoch, _ in enumerate(sys.stdin):
    print(*sorted(read_epoch(loader, epoch)[1]), flush=True)
"""


def ask_for_epoch(program: subprocess.Popen[str]) -> list[int]:
    assert program.stdin
    assert program.stdout
    print(file=program.stdin, flush=True)
    return [int(pid) for pid in program.stdout.readline().split()]


def test_workers_outlive_a_stop_signal_but_not_their_process() -> None:
    """SIGTERM and SIGINT from others end no worker; when the process is killed or ends, its workers end too."""
    argv = [sys.executable, "-c", PROGRAM]
    for end in (subprocess.Popen.kill, lambda program: program.stdin.close()):
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            workers = ask_for_epoch(program)
            for worker in workers:
                os.kill(worker, signal.SIGTERM)
                os.kill(worker, signal.SIGINT)
            assert ask_for_epoch(program) == workers
            end(program)
            program.wait(timeout=60)
            wait_until_ended(workers)


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_that_dont_stack_are_reported_from_any_process(workers: int) -> None:
    """The message names the part and its shapes, without a traceback of a worker."""
    loader = BatchLoader(Ragged(), seed=5, device=CPU, workers=workers)
    with pytest.raises(BadRequestError, match=r"sample\['tokens'\] is \(\d+,\) and \(\d+,\)") as raised:
        next(loader.batches(epoch=0, batch_size=4))
    assert "collate" in raised.value.fix
    loader.close()


class Hanging(Whose):
    """Samples that are never ready; the file has the process that waits for one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def sample(self, index: int, rng: np.random.Generator) -> Batch:  # noqa: ARG002
        self._path.write_text(f"{os.getpid()}\n")
        threading.Event().wait()


def test_a_worker_that_hangs_in_a_sample_ends_with_the_loader(tmp_path: Path) -> None:
    """Closing doesn't wait for the sample."""
    path = tmp_path / "pid"
    loader = BatchLoader(Hanging(path), seed=5, device=CPU, workers=1)
    loader.batches(epoch=0, batch_size=4)
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    loader.close()
    wait_until_ended([int(path.read_text())])


class Unreadable(Whose):
    """Samples that raise an error of the given type."""

    def __init__(self, kind: type[Exception]) -> None:
        self._kind = kind

    def sample(self, index: int, rng: np.random.Generator) -> Batch:  # noqa: ARG002
        raise self._kind(f"file {index} is missing")


class UnpicklableError(Exception):
    """Can't go from one process to another."""

    def __reduce__(self) -> str:
        raise TypeError


def test_errors_of_samples_keep_their_type_and_text_from_any_process() -> None:
    """A worker's error is raised as it is, with the worker's traceback; one that can't be pickled as torch does it."""
    for workers in (0, 1):
        loader = BatchLoader(Unreadable(FileNotFoundError), seed=5, device=CPU, workers=workers)
        with pytest.raises(FileNotFoundError, match=r"^file \d+ is missing") as raised:
            next(loader.batches(epoch=0, batch_size=4))
        assert str(raised.value).endswith("is missing")
        assert ("in sample" in "".join(getattr(raised.value, "__notes__", []))) == bool(workers)
        loader.close()
    loader = BatchLoader(Unreadable(UnpicklableError), seed=5, device=CPU, workers=1)
    with pytest.raises(UnpicklableError, match="is missing"):
        next(loader.batches(epoch=0, batch_size=4))
    loader.close()


def test_reading_ahead_keeps_order_raises_errors_and_ends() -> None:
    """Items come in order, an error comes after the items before it, and a closed reader stops taking items."""
    assert list(ReadAhead(iter(range(20)), lambda number: 2 * number)) == list(range(0, 40, 2))
    failing = iter(ReadAhead(iter([1, 2, 0, 4]), lambda number: 8 // number))
    assert [next(failing), next(failing)] == [8, 4]
    with pytest.raises(ZeroDivisionError):
        next(failing)
    taken: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            taken.append(len(taken))
            yield taken[-1]

    ahead = ReadAhead(endless(), lambda number: number, ready=2)
    assert next(iter(ahead)) == 0
    assert ahead.close()
    count = len(taken)
    assert count <= 6  # used, two waiting, one prepared; closing makes room for two more
    assert len(taken) == count


def test_taking_one_ahead_takes_exactly_one() -> None:
    """When an item is used, the next one has been taken, and no more; the last ones aren't lost."""
    taken: list[int] = []

    def count() -> Iterator[int]:
        for number in range(4):
            taken.append(number)
            yield number

    assert [(number, len(taken)) for number in take_one_ahead(count())] == [(0, 2), (1, 3), (2, 4), (3, 4)]
    assert list(take_one_ahead(iter([7]))) == [7]
    assert list(take_one_ahead(iter(()))) == []


def test_an_abandoned_reader_stops_when_its_workers_are_closed() -> None:
    """Closing a loader in the middle of an epoch ends its workers at once, and a new epoch has new ones."""
    loader = BatchLoader(Whose(), seed=5, device=CPU, workers=2)
    batches = loader.batches(epoch=0, batch_size=4)
    workers = {int(process) for process in next(batches)[2]} | {int(process) for process in next(batches)[2]}
    loader.close()
    wait_until_ended(workers)
    assert not workers & read_epoch(loader, 0)[1]
    loader.close()


def test_loader_is_closed_while_a_worker_is_still_starting() -> None:
    """On a busy machine, a stop right after the start. The second worker sleeps before it handles any signal."""
    script = (
        "import os, time, torch\n"
        "from tests.trainer.test_data_workers import BatchLoader, Whose\n"
        "forks = [0]\n"
        "def sleep(): time.sleep(5 if forks[-1] == 2 else 0)\n"
        "os.register_at_fork(before=lambda: forks.append(forks[-1] + 1), after_in_child=sleep)\n"
        "loader = BatchLoader(Whose(), seed=0, device=torch.device('cpu'), workers=2)\n"
        "next(loader.batches(epoch=0, batch_size=4))\n"
        "loader.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
