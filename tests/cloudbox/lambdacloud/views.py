"""How the API shows an instance."""

from __future__ import annotations

from typing import Any

from tests.cloudbox.lambdacloud.account import Account, show_region
from tests.cloudbox.lambdacloud.state import Instance

_ALWAYS = ("id", "status", "ssh_key_names", "file_system_names", "region", "instance_type", "actions")
"""The fields that are always there. fact: lambda-optional-fields"""


def show_instance(account: Account, instance: Instance) -> dict[str, Any]:
    """Return an instance as the API shows it: without any times (fact: lambda-no-times), and with secrets.

    fact: lambda-listing-has-secrets; fact: lambda-unknown-fields
    """
    now, settings = account.clock.now(), account.settings
    names = {each: account.filesystems[each].name for each in instance.mounts if each in account.filesystems}
    shown: dict[str, Any] = {
        "id": instance.id,
        "name": instance.name,
        "status": account.status(instance),
        "ssh_key_names": [instance.key.name],
        "file_system_names": list(names.values()),
        "file_system_mounts": [
            {"mount_point": point, "file_system_id": each} for each, point in instance.mounts.items()
        ],
        "region": show_region(instance.region),
        "instance_type": instance.type.describe(),
        "hostname": instance.hostname or instance.address.replace(".", "-"),
        "actions": _actions(account, instance),
        "tags": [dict(tag) for tag in instance.tags],
        "firewall_rulesets": [{"id": each} for each in instance.ruleset_ids],
        "is_reserved": False,
        "workspace_id": "5f0e5d1f3c0b4c0e8a1d2b3c4d5e6f70",
        "image": {"id": instance.image.id, "family": instance.image.family},
    }
    if now >= instance.address_at:
        shown |= {"ip": instance.address, "private_ip": instance.private_address}
    if now >= instance.active_at:
        url = f"https://jupyter-{instance.id}.lambdaspaces.com/?token={instance.jupyter_token}"
        shown |= {"jupyter_token": instance.jupyter_token, "jupyter_url": url}
    if settings.folds_case:
        _fold(shown)
    for each in settings.left_out:
        if each in _ALWAYS:
            raise ValueError(f"{each} is never missing")
        shown.pop(each, None)
    return shown


def is_endable(account: Account, instance: Instance) -> bool:
    """Tell whether an instance is old enough to be terminated. fact: lambda-not-endable-at-first."""
    return instance.is_foreign or account.clock.now() >= instance.created_at + account.settings.endable_seconds


def _actions(account: Account, instance: Instance) -> dict[str, Any]:
    status = account.status(instance)
    if status in ("terminating", "terminated"):
        no: dict[str, Any] = {"available": False, "reason_code": "vm-is-terminating"}
        return dict.fromkeys(("migrate", "rebuild", "restart", "cold_reboot", "terminate"), no)
    early: dict[str, Any] = {"available": False, "reason_code": "vm-has-not-launched"}
    at_work = {"available": True} if status != "booting" else early
    return {
        "migrate": {"available": False, "reason_code": "vm-is-too-old"},
        "rebuild": at_work,
        "restart": at_work,
        "cold_reboot": at_work,
        "terminate": {"available": True} if is_endable(account, instance) else early,
    }


def _fold(shown: dict[str, Any]) -> None:
    shown["name"] = shown["name"].lower()
    shown["tags"] = [{"key": tag["key"], "value": tag["value"].lower()} for tag in shown["tags"]]
