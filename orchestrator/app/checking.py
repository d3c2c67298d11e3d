"""The use case of `kedge doctor`: look at this computer, or at an account, as a launch will find it."""

from __future__ import annotations

from orchestrator.adapters.jobfile.flags import Overrides
from orchestrator.adapters.providers import open_probes
from orchestrator.app.launching import read_plain_machine
from orchestrator.app.root import App
from orchestrator.app.world import provider_context
from orchestrator.core.checkup import Check, run_probes
from orchestrator.core.job import Resources


def check_up(app: App, overrides: Overrides) -> tuple[Check, ...]:
    """Look at a provider, this computer where none is named; nothing is made or changed.

    Raises:
        BadRequestError: a wish or the user's settings can't be read, or a provider can't be used at all.
    """
    job = read_plain_machine(app, overrides)
    provider = job.resources.provider or "local"
    return check_provider(app, provider, job.resources_at(provider, app.settings.ssh_from))


def check_provider(app: App, provider: str, resources: Resources) -> tuple[Check, ...]:
    """Look at one provider.

    Raises:
        BadRequestError: it can't be used at all.
    """
    return run_probes(open_probes(provider, provider_context(app.settings, app.clock), resources))
