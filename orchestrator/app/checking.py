"""The use case of `kedge doctor`: checks this computer, or an account, for what a launch needs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.providers import PROVIDERS, look_at_sign_in, open_probes
from orchestrator.app.launch.launching import read_plain_machine
from orchestrator.app.root import App
from orchestrator.app.world import provider_context
from orchestrator.core.checkup import Check, Probe, run_probe, run_probes
from orchestrator.core.job import Resources


def check_up(app: App, overrides: Overrides) -> tuple[Check, ...]:
    """Check a provider; if none is named, check this computer and the sign-in of each account.

    Nothing is created or changed. Accounts without credentials on this computer aren't contacted.

    Raises:
        BadRequestError: a flag or the user's settings are invalid, or a provider can't be used at all.
    """
    job = read_plain_machine(app, overrides)
    provider = job.resources.provider or "local"
    found = check_provider(app, provider, job.resources_at(provider, app.settings.ssh_from))
    return found if job.resources.provider else (*found, *_check_sign_ins(app))


def _check_sign_ins(app: App) -> Iterator[Check]:
    context = provider_context(app.settings, app.clock)
    for name, entry in PROVIDERS.items():
        if entry.sign_in is not None:
            yield run_probe(Probe(name=f"{name} credentials", look=partial(look_at_sign_in, name, context)))


def check_provider(app: App, provider: str, resources: Resources) -> tuple[Check, ...]:
    """Check one provider.

    Raises:
        BadRequestError: it can't be used at all.
    """
    return run_probes(open_probes(provider, provider_context(app.settings, app.clock), resources))
