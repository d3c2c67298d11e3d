"""Finds the files that ship with kedge beside its code: templates, infra, and the bundled trainer."""

from __future__ import annotations

from pathlib import Path

from orchestrator.core.errors import KedgeError

_PACKAGES = ("trainer", "kedge_trainer")
_PACKAGE = Path(__file__).resolve().parents[2]


def resource(*parts: str, package: Path = _PACKAGE) -> Path:
    """Return the path of a file or folder that ships with kedge.

    A wheel carries `templates` and `infra` inside the package, under `_resources`. An editable install has no
    such copy: there they are in the checkout, beside the package. The trainer and its launcher are beside the package
    in both.

    Args:
        parts: for example `"templates", "systemd"`, or `"trainer"`.
        package: the folder of the `orchestrator` package.

    Raises:
        KedgeError: it doesn't exist: the installation is damaged.
    """
    beside = package.parent
    packed = package / "_resources"
    base = packed if packed.is_dir() and parts[0] not in _PACKAGES else beside
    path = base.joinpath(*parts)
    if not path.exists():
        raise KedgeError(
            f"kedge's own {'/'.join(parts)} is missing",
            why=f"there is no {path}",
            fix="install kedge again",
        )
    return path
