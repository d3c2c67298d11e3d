"""Fixtures that several suites share: a laptop, a bucket, and each cloud's box with and without machines."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import hypothesis
import pytest

from tests.support import box_cache
from tests.support.laptop import Laptop, clean_laptop, describe_machines
from tests.support.preloaded.process import EVERYTHING_ANEW

if TYPE_CHECKING:
    from tests.agent.aws import Aws
    from tests.cloudbox.aws.box import Box
    from tests.cloudbox.digitalocean.box import DigitalOceanBox
    from tests.cloudbox.lambdacloud.box import LambdaBox

# A shell's background job ignores SIGINT, and so do its children. The programs under test must not ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Write bytecode, as on a user's computer, even in a container that disables it. Otherwise each of the thousands of
# programs under test compiles kedge again, which is a quarter of the time of a short command.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _put_python_first() -> None:
    """If `python3` is a version manager's shell script, put the folder of the Python that it starts before it.

    Each call of such a script takes 30 ms of CPU time, and the programs under test make hundreds.
    """
    found = shutil.which("python3")
    if found and Path(found).read_bytes()[:2] == b"#!":
        ask = [found, "-ISc", "import sys; print(sys.base_prefix)"]
        base = subprocess.run(ask, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
        os.environ["PATH"] = f"{base}/bin{os.pathsep}{os.environ['PATH']}"


_put_python_first()
pytest_configure = box_cache.pytest_configure

_FIRST = ("tests/scripts/", "tests/newcomer/")
"""Each worker takes the next file when it has finished one: a long file at the end would keep the others waiting."""
_WAITING = "tests/in_cloudbox/"
_AFTER = 8
"""A file whose machines boot waits most of the time. After each comes this many that compute, so that no core idles."""
_BOOTING = (_WAITING, "tests/cloudbox/own/", "tests/chaos/")
_BOOTING_SECONDS = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files for several workers; tests that boot machines have more time, for a slow computer."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
        if item.nodeid.startswith(_BOOTING) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_BOOTING_SECONDS))
    items[:] = [item for file in _ordered(list(files)) for item in files[file]]


def _ordered(files: list[str]) -> list[str]:
    first = [file for file in files if file.startswith(_FIRST)]
    waiting = iter([file for file in files if file.startswith(_WAITING)])
    others = [file for file in files if not file.startswith((*_FIRST, _WAITING))]
    # The recipes' learning bars take longest, and the trainer's files are long as well.
    others.sort(key=lambda file: (not file.endswith("/test_learning.py"), not file.startswith("tests/trainer/")))
    mixed: list[str] = []
    for number, file in enumerate(others):
        mixed += [*islice(waiting, number % _AFTER == 0), file]
    return [*first, *mixed, *waiting]


def pytest_collection_finish() -> None:
    """Share what all AWS clients have in common; keep imports out of garbage collection, a tenth of the tests' cost."""
    if "botocore.client" in sys.modules and EVERYTHING_ANEW not in os.environ:
        from tests.support.preloaded.sdk_memory import share_among_clients

        share_among_clients()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what a laptop's machines were doing to the report of a failed test."""
    report = yield
    laptop = getattr(item, "funcargs", {}).get("laptop")
    if report.when == "call" and report.failed and isinstance(laptop, Laptop):
        report.sections.append(("machines", describe_machines(laptop)))
    return report


# How long an example takes depends on what else this computer does.
hypothesis.settings.register_profile("kedge", deadline=None)
hypothesis.settings.load_profile("kedge")


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    """A laptop that must be clean when the test ends."""
    with clean_laptop(tmp_path) as laptop:
        yield laptop


# Each fixture imports its box itself: boto3 takes longer to load than most tests take to run.


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """One S3 server for all tests of a worker."""
    from tests.cloudbox.aws.strict_moto import serving_moto

    with serving_moto() as url:
        yield url


@pytest.fixture
def aws(moto: str) -> Iterator[Aws]:
    """A bucket for this test, and a metadata service with a role."""
    from tests.agent.aws import running_aws

    with running_aws(moto, f"kedge-{uuid4().hex}") as running:
        yield running


@pytest.fixture(scope="session")
def api_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """One box without machines for all tests of a worker; needs neither root nor Linux."""
    from tests.cloudbox.aws.box import start_box

    with start_box(tmp_path_factory.mktemp("api"), machines=False) as box:
        yield box


@pytest.fixture(scope="session")
def box_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """One box with machines for all tests of a worker; installs what machines need, or skips."""
    from tests.cloudbox.aws.box import start_box
    from tests.cloudbox.nspawn.needs import prepare_machines

    if reason := prepare_machines():
        pytest.skip(reason)
    with start_box(tmp_path_factory.mktemp("box")) as box:
        yield box


@pytest.fixture
def api(api_process: Box) -> Iterator[Box]:
    """A new, empty AWS account."""
    yield api_process
    api_process.reset()


@pytest.fixture
def box(box_process: Box) -> Iterator[Box]:
    """A new, empty AWS account whose instances are machines that boot."""
    box_process.reset()
    yield box_process
    box_process.reset()


@pytest.fixture(scope="session")
def do_api_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DigitalOceanBox]:
    """One DigitalOcean without machines for all tests of a worker; needs neither root nor Linux."""
    from tests.cloudbox.digitalocean.box import start_box

    with start_box(tmp_path_factory.mktemp("do-api")) as do:
        yield do


@pytest.fixture(scope="session")
def amd_api_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DigitalOceanBox]:
    """One AMD Developer Cloud without machines for all tests of a worker: DigitalOcean's API, another catalogue."""
    from tests.cloudbox.digitalocean.account.catalogue import AMD
    from tests.cloudbox.digitalocean.box import start_box

    with start_box(tmp_path_factory.mktemp("amd-api"), catalogue=AMD) as amd:
        yield amd


@pytest.fixture(scope="session")
def amd_box_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DigitalOceanBox]:
    """One AMD Developer Cloud with machines for all tests of a worker; installs what machines need, or skips."""
    from tests.cloudbox.digitalocean.account.catalogue import AMD
    from tests.cloudbox.digitalocean.box import start_box
    from tests.cloudbox.nspawn.needs import prepare_machines

    if reason := prepare_machines():
        pytest.skip(reason)
    with start_box(tmp_path_factory.mktemp("amd-box"), machines=True, catalogue=AMD) as amd:
        yield amd


@pytest.fixture(scope="session")
def do_box_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DigitalOceanBox]:
    """One DigitalOcean with machines for all tests of a worker; installs what machines need, or skips."""
    from tests.cloudbox.digitalocean.box import start_box
    from tests.cloudbox.nspawn.needs import prepare_machines

    if reason := prepare_machines():
        pytest.skip(reason)
    with start_box(tmp_path_factory.mktemp("do-box"), machines=True) as do:
        yield do


@pytest.fixture
def do_api(do_api_process: DigitalOceanBox) -> Iterator[DigitalOceanBox]:
    """A new, empty DigitalOcean account."""
    yield from _fresh(do_api_process)


@pytest.fixture
def amd_api(amd_api_process: DigitalOceanBox) -> Iterator[DigitalOceanBox]:
    """A new, empty AMD Developer Cloud account."""
    yield from _fresh(amd_api_process)


@pytest.fixture
def do_box(do_box_process: DigitalOceanBox) -> Iterator[DigitalOceanBox]:
    """A new, empty DigitalOcean account whose droplets are machines that boot."""
    yield from _fresh(do_box_process)


@pytest.fixture
def amd_box(amd_box_process: DigitalOceanBox) -> Iterator[DigitalOceanBox]:
    """A new, empty AMD Developer Cloud account whose droplets are machines that boot."""
    yield from _fresh(amd_box_process)


def _fresh(do: DigitalOceanBox) -> Iterator[DigitalOceanBox]:
    do.reset()
    # Short, because programs wait in real time. Tests that run on the box's clock set the real figure.
    do.settings.key_seconds = 0.5
    yield do
    broken = do.broken
    do.reset()
    assert not broken, "the box made mistakes"


@pytest.fixture(scope="session")
def lambda_api_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LambdaBox]:
    """One Lambda Cloud without machines for all tests of a worker; needs neither root nor Linux."""
    from tests.cloudbox.lambdacloud.box import start_box

    with start_box(tmp_path_factory.mktemp("lambda-api")) as lam:
        yield lam


@pytest.fixture(scope="session")
def lambda_box_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LambdaBox]:
    """One Lambda Cloud with machines for all tests of a worker; installs what machines need, or skips."""
    from tests.cloudbox.lambdacloud.box import start_box
    from tests.cloudbox.nspawn.needs import prepare_machines

    if reason := prepare_machines():
        pytest.skip(reason)
    with start_box(tmp_path_factory.mktemp("lambda-box"), machines=True) as lam:
        yield lam


@pytest.fixture
def lambda_api(lambda_api_process: LambdaBox) -> Iterator[LambdaBox]:
    """A new, empty Lambda account."""
    yield from _fresh_lambda(lambda_api_process)


@pytest.fixture
def lambda_box(lambda_box_process: LambdaBox) -> Iterator[LambdaBox]:
    """A new, empty Lambda account whose instances are machines that boot."""
    yield from _fresh_lambda(lambda_box_process)


def _fresh_lambda(lam: LambdaBox) -> Iterator[LambdaBox]:
    lam.reset()
    # Short, because programs wait in real time. Tests that run on the box's clock set the real figures.
    lam.settings.remove_delays()
    yield lam
    broken = lam.broken
    lam.reset()
    assert not broken, "the box made mistakes, or its client changed resources shared by the whole account"
