"""Environment variables that select the machine's Python, pip and uv, for the run's scripts and `kedge ssh` shells."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from ..base.files import write_atomically
from ..base.layout import Layout
from ..base.record import Record


class Default(Record):
    """A variable that is set only if none of `unless` is set."""

    name: str
    value: str
    unless: tuple[str, ...]


class Activation(Record):
    """Changes to an environment.

    Attributes:
        path: folders to put first on PATH.
        variables: variables that are always set.
        defaults: variables that are set if nobody else has set them, in this order.
    """

    path: tuple[str, ...]
    variables: Mapping[str, str] = {}
    defaults: tuple[Default, ...] = ()

    def apply(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return an environment with these changes."""
        env = {**env, **self.variables, "PATH": os.pathsep.join([*self.path, env["PATH"]])}
        for default in self.defaults:
            if not any(name in env for name in default.unless):
                env[default.name] = default.value
        return env

    def render(self) -> str:
        """Render the same changes as a script for any POSIX shell."""
        lines = [f"export {name}={shlex.quote(value)}" for name, value in self.variables.items()]
        lines.append(f"export PATH={shlex.quote(os.pathsep.join(self.path))}:$PATH")
        for default in self.defaults:
            found = "".join(f"${{{name}+x}}" for name in default.unless)
            lines.append(f'[ -n "{found}" ] || export {default.name}={shlex.quote(default.value)}')
        return "".join(f"{line}\n" for line in lines)


def write_activation(layout: Layout, activation: Activation) -> None:
    """Write the file that `kedge ssh` and `kedge exec` source, if it has changed."""
    content = activation.render().encode(errors="surrogateescape")
    file = layout.activation_file
    if not file.exists() or file.read_bytes() != content:
        write_atomically(file, content)
