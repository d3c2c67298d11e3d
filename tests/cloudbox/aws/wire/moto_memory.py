"""What moto finds out anew for each call, found out once: a fifth of the box's CPU time."""

from __future__ import annotations

from functools import cache

from moto import backends
from moto.core import responses, utils
from moto.kms import models
from moto.kms.utils import generate_private_key


def remember_constants() -> None:
    """Remember moto's own folders and methods; and the key that encrypts no disk here, once per kind of key."""
    modules = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: modules
    responses.method_names_from_class = cache(utils.method_names_from_class)  # type: ignore[attr-defined]
    models.generate_private_key = cache(generate_private_key)  # type: ignore[attr-defined]
