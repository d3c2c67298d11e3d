"""The definition of a flag: name, value, help texts, completion, and the key of the job that it overrides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from keyword import iskeyword


class Completes(Enum):
    """How a shell completes a flag's value."""

    NOTHING = ""
    FILES = "files"
    JOBS = "jobs"
    MODES = "modes"
    PROVIDERS = "providers"
    RUNS = "runs"
    LIVE_RUNS = "live runs"
    TASKS = "tasks"


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag, as several commands may have it.

    Attributes:
        name: as it is typed, without the dashes.
        value: the placeholder of its value in help; empty for a switch.
        says: names of commands, separated by spaces -> the help text of the flag in these commands.
        default: the value if it isn't given; a switch is then off, and a repeatable flag is empty.
        repeated: it may be given several times.
        short: its one-letter form, which is the same in every command.
        overrides: the key of a job that it overrides (`FlagsPart` in adapters/jobfile/models.py); empty for a flag that
            the command itself reads.
        completes: how a shell completes its value.
        choices: the allowed values, if they are few.
        positional: its value may also follow the command's first word, without the flag's name.
    """

    name: str
    value: str
    says: Mapping[str, str]
    _: KW_ONLY
    default: str | int | None = None
    repeated: bool = False
    short: str = ""
    overrides: str = ""
    completes: Completes = Completes.NOTHING
    choices: tuple[str, ...] = ()
    positional: bool = False

    @property
    def parameter(self) -> str:
        """Its name in Python."""
        name = self.name.replace("-", "_")
        return f"{name}_" if iskeyword(name) else name

    @property
    def written(self) -> tuple[str, ...]:
        """Its forms on the command line: `--yes`, and `-y` if it has a letter."""
        return (f"--{self.name}", f"-{self.short}") if self.short else (f"--{self.name}",)

    def text(self, command: str) -> str:
        """Return its help text for a command; empty if the command doesn't have it."""
        return next((text for commands, text in self.says.items() if command in commands.split()), "")
