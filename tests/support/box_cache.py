"""A pytest plugin that skips the box's own tests if the box hasn't changed since they passed on this machine.

Only a run of all tests records that they passed, in pytest's cache, which is not in git: a clean checkout runs them. A
run with named tests runs these.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

ALL = "KEDGE_TESTS_ALL"
"""If this variable is set, the box's tests always run."""
OWN = "tests/cloudbox/own/"
ALWAYS = "tests/cloudbox/own/aws_model/"
"""The test that reads which AWS calls the product makes, so that a change of the product can make it fail."""
COVERED = (
    "tests/cloudbox",
    "tests/support",
    "tests/conftest.py",
    "tests/agent/standin",
    "orchestrator/__init__.py",
    "orchestrator/adapters/__init__.py",
    "orchestrator/adapters/host/__init__.py",
    "orchestrator/adapters/host/resources.py",
    "orchestrator/adapters/providers/__init__.py",
    "orchestrator/adapters/providers/digitalocean/__init__.py",
    "orchestrator/adapters/providers/digitalocean/self_deletion.py",
    "templates",
    "infra",
    "locks/tests.txt",
    "pyproject.toml",
    "../shared/specs",
)
"""The files of the box and of its own tests; tests/golden/test_box_cache.py compares this with their imports."""
_KEY = "kedge/box-passed"


def pytest_configure(config: pytest.Config) -> None:
    """Install the plugin."""
    config.pluginmanager.register(BoxCache(config))


class BoxCache:
    """The plugin, in pytest's main process and in xdist's workers."""

    def __init__(self, config: pytest.Config) -> None:
        """Decide whether this run skips the box's tests."""
        self._config = config
        self._input: dict[str, Any] | None = getattr(config, "workerinput", None)
        self._collected: set[str] = set()
        self._passed: set[str] = set()
        self._failed = False
        self._is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
        self._digest = "" if self._input else digest_of_box(config.rootpath)
        self._leaves_out = bool(self._input["leaves_out_box"]) if self._input else self._may_leave_out()

    def _may_leave_out(self) -> bool:
        return self._is_whole and ALL not in os.environ and self._config.cache.get(_KEY, "") == self._digest

    def pytest_report_header(self) -> str | None:
        """Report that the box's tests are skipped."""
        return f"{OWN}: passed here as they are, left out ({ALL}=1 runs them)" if self._leaves_out else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker whether to skip them."""
        node.workerinput["leaves_out_box"] = self._leaves_out

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Skip the box's tests, or record which were collected."""
        own = [item for item in items if _is_own(item.nodeid)]
        if self._leaves_out:
            self._config.hook.pytest_deselected(items=own)
            items[:] = [item for item in items if not _is_own(item.nodeid)]
        else:
            self._collected |= {item.nodeid for item in own}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the outcome of one of the box's tests; a skipped test has not passed."""
        if _is_own(report.nodeid):
            self._failed |= report.failed
            if report.when == "call" and report.passed:
                self._passed.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Collect a worker's results."""
        self._collected |= set(getattr(node, "workeroutput", {}).get("box_tests", ()))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Record that all of them passed, or pass the results to the main process."""
        if self._input is not None:
            output: dict[str, Any] = self._config.workeroutput  # type: ignore[attr-defined]
            output["box_tests"] = sorted(self._collected)

    def pytest_unconfigure(self) -> None:
        """Record that all of them passed, when every worker has ended."""
        whole = self._is_whole and self._input is None and not self._failed
        if whole and self._collected and self._passed >= self._collected:
            # The digest from the start, because files may have changed while the tests ran.
            self._config.cache.set(_KEY, self._digest)


def digest_of_box(root: Path) -> str:
    """Return a digest of the box's files, the interpreter and the system."""
    digest = hashlib.sha256(f"{sys.version} {platform.platform()}\n".encode())
    for path in sorted(file for name in COVERED for file in _files(root / name)):
        digest.update(f"{path}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return [file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    return [path] if path.exists() else []


def _is_own(nodeid: str) -> bool:
    return nodeid.startswith(OWN) and not nodeid.startswith(ALWAYS)
