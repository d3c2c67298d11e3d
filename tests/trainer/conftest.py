import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.trainer import harness
from tests.trainer.ranks import OnRanks, ranks_as_threads
from trainer.group.distributed import ProcessGroup


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    """Sums have the same bits in all tests of a module, and in what its own fixtures have trained."""
    torch.set_num_threads(1)


@pytest.fixture
def group() -> Iterator[ProcessGroup]:
    """A group of one process, which shards as others do."""
    store = dist.HashStore()  # type: ignore[attr-defined]  # public, but not in its __all__
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield ProcessGroup(rank=0, size=1, device=torch.device("cpu"), store=store)
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def default_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, harness.Result]:
    """The digits recipe with its defaults, from the command line, to the end."""
    folder = tmp_path_factory.mktemp("default") / "output"
    return folder, harness.run(folder)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small uninterrupted run on one process; read-only."""
    folder = tmp_path_factory.mktemp("small") / "output"
    torch.set_num_threads(1)
    assert harness.call(folder, *harness.SMALL) == 0
    return folder


@pytest.fixture
def finished(small_run: Path, tmp_path: Path) -> Path:
    """A copy of the small run, which a test may change."""
    return Path(shutil.copytree(small_run, tmp_path / "output"))


@pytest.fixture
def compiled_graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.fx.GraphModule]]:
    """What the compiler was given; it is computed without kernels, whose compilation takes long."""
    graphs: list[torch.fx.GraphModule] = []
    aot_eager = importlib.import_module("torch._dynamo.backends.debugging").aot_eager

    def compile_without_kernels(_inductor: object, graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return aot_eager(graph, inputs)

    monkeypatch.setattr(torch._TorchCompileInductorWrapper, "__call__", compile_without_kernels)
    torch.compiler.reset()
    yield graphs
    torch.compiler.reset()


@pytest.fixture
def on_ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[OnRanks]:
    """Calls a function on several ranks of a process group."""
    with ranks_as_threads(monkeypatch) as call:
        yield call
