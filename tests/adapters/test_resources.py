"""Files that are installed with kedge are found in a wheel and in a checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.adapters.host.resources import resource
from orchestrator.core.errors import KedgeError


def make_files(folder: Path, *files: str) -> Path:
    """Make empty files, and return the folder of the package."""
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder / "orchestrator"


def test_a_wheel_has_resources_inside_the_package(tmp_path: Path) -> None:
    """Folders of other packages next to it aren't mistaken for kedge's."""
    package = make_files(
        tmp_path,
        "orchestrator/_resources/templates/a.j2",
        "orchestrator/_resources/infra/jobs/x.yaml",
        "trainer/__init__.py",
        "infra/jobs/strangers.yaml",
    )
    assert resource("templates", "a.j2", package=package) == package / "_resources/templates/a.j2"
    assert resource("infra", "jobs", package=package) == package / "_resources/infra/jobs"
    assert resource("trainer", package=package) == tmp_path / "trainer"
    with pytest.raises(KedgeError, match="missing"):
        resource("infra", "jobs", "strangers.yaml", package=package)


def test_a_checkout_has_resources_beside_the_package(tmp_path: Path) -> None:
    """As an editable install sees them."""
    package = make_files(tmp_path, "orchestrator/app.py", "templates/a.j2", "infra/jobs/x.yaml", "trainer/__init__.py")
    assert resource("templates", "a.j2", package=package) == tmp_path / "templates/a.j2"
    assert resource("infra", "jobs", "x.yaml", package=package) == tmp_path / "infra/jobs/x.yaml"
    assert resource("trainer", package=package) == tmp_path / "trainer"


def test_this_installation_is_complete() -> None:
    """Looks for real files."""
    assert resource("templates", "systemd", "kedge-run.service.j2").is_file()
    assert resource("infra", "jobs", "digits.yaml").is_file()
    assert resource("trainer", "__init__.py").is_file()
    assert resource("kedge_trainer", "__main__.py").is_file()


def test_a_damaged_installation_says_so(tmp_path: Path) -> None:
    """The error has a fix."""
    with pytest.raises(KedgeError) as caught:
        resource("templates", "a.j2", package=tmp_path / "orchestrator")
    assert caught.value.fix == "install kedge again"
