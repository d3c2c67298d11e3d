"""Writes the report of a self-test, which users can attach to an issue: the checks, without secrets or private data."""

from __future__ import annotations

import ipaddress
import json
import platform
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from orchestrator import __version__
from orchestrator.adapters.host.files import write_atomically
from orchestrator.app.selftest.life import Selftest
from orchestrator.core.machine import Machine

REPORT = "kedge-selftest.json"

_SECRET_NAME = re.compile(r"TOKEN|SECRET|KEY|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SHORTEST_SECRET = 6
"""Shorter values are common words, and are left in."""
_PRIVATE = (
    (re.compile(r"(?<!\d)\d{12}(?!\d)"), "ACCOUNT"),
    (re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+"), "MAIL"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b"), "ADDRESS"),
    (re.compile(r"arn:[\w-]+:(?:sts|iam)::\S+"), "ARN"),
)

_MAYBE_IPV6 = re.compile(r"[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*")


def write_report(
    path: Path, test: Selftest, machines: Sequence[Machine], cost_usd: Decimal, environ: Mapping[str, str]
) -> None:
    """Write the report."""
    spec = test.spec
    content = {
        "kedge": __version__,
        "python": platform.python_version(),
        "laptop": platform.system(),
        "provider": spec.provider,
        "gpu": str(spec.job.resources.accelerators or ""),
        "spot": spec.job.resources.use_spot,
        "run": spec.run_id,
        "machines": [
            {"id": machine.id, "region": machine.region, "usd_per_hour": f"{machine.usd_per_hour:f}"}
            for machine in machines
        ],
        "cost_usd": f"{cost_usd:.4f}",
        "passed": test.completed and test.error is None,
        "checks": [
            {"check": line.name, "verdict": str(line.verdict), "seconds": round(line.seconds, 1), "found": line.found}
            for line in test.tried
        ],
    }
    write_atomically(
        path, (redact(json.dumps(content, indent=2), environ) + "\n").encode(), mode=0o644, within=path.parent
    )


def redact(text: str, environ: Mapping[str, str]) -> str:
    """Remove the values of variables that hold secrets, account numbers, addresses, and the user's home."""
    secrets = {value for name, value in environ.items() if _SECRET_NAME.search(name)}
    for value in sorted(secrets, key=len, reverse=True):
        if len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "SECRET")
    for pattern, name in _PRIVATE:
        text = pattern.sub(name, text)
    text = _MAYBE_IPV6.sub(_hide_ipv6, text)
    home = environ.get("HOME", "")
    return text.replace(home, "~") if len(home) > 1 else text


def _hide_ipv6(found: re.Match[str]) -> str:
    try:
        ipaddress.IPv6Address(found.group())
    except ValueError:
        return found.group()
    return "ADDRESS"
