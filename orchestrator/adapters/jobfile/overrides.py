"""The flags of a command that change a job, as typed. Loads nothing, so that `kedge doctor` works without pydantic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ENVS, ALLOW_SECRET, ALLOW_PROXY_COMMAND, ALLOW_CHECK = "envs", "allow_secret", "allow_proxy_command", "allow_check"
OF_NO_KEY = frozenset({ENVS, ALLOW_SECRET, ALLOW_PROXY_COMMAND, ALLOW_CHECK})
"""What flags set that is no key of a job file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A flag on the command line.

    Attributes:
        flag: its name as typed, for errors: `--image-id`.
        key: what it overrides: a key of models.FlagsPart, such as `resources.image_id`, or one of `OF_NO_KEY`.
    """

    flag: str
    key: str
    value: str | bool | Iterable[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """The flags on a command line."""

    given: tuple[Override, ...] = ()

    @property
    def envs(self) -> tuple[str, ...]:
        """Values of `--env`: `NAME=value`, or `NAME` to take the laptop's value."""
        return self._all(ENVS)

    @property
    def allowed(self) -> frozenset[str]:
        """Names of kedge's own credentials that the job may have."""
        return frozenset(self._all(ALLOW_SECRET))

    @property
    def allows_proxy_command(self) -> bool:
        """The job file may name a command that this computer runs."""
        return self.has(ALLOW_PROXY_COMMAND)

    @property
    def allows_check(self) -> bool:
        """The job file's check of its data may be run although nobody is asked."""
        return self.has(ALLOW_CHECK)

    @property
    def of_keys(self) -> tuple[Override, ...]:
        """The flags that override a key of the job file."""
        return tuple(each for each in self.given if each.key not in OF_NO_KEY)

    def has(self, key: str) -> bool:
        """Tell whether there is a flag for this key."""
        return any(each.key == key for each in self.given)

    def adding(self, flag: str, key: str, value: str | Iterable[str]) -> Overrides:
        """Return these flags and one more."""
        return Overrides(given=(*self.given, Override(flag=flag, key=key, value=value)))

    def value_of(self, key: str) -> str | None:
        """Return the last value of a flag that takes one; None if it isn't given."""
        values = [each.value for each in self.given if each.key == key]
        return next((value for value in reversed(values) if isinstance(value, str)), None)

    def without(self, key: str) -> Overrides:
        """Return these flags but for those of a key."""
        return Overrides(given=tuple(each for each in self.given if each.key != key))

    def _all(self, key: str) -> tuple[str, ...]:
        lists = (each.value for each in self.given if each.key == key)
        return tuple(value for values in lists if not isinstance(values, bool) for value in values)
