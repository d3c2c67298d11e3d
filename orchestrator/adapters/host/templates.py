"""Renders the templates that ship with kedge: undefined names fail, and filters quote the values."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import TYPE_CHECKING

from orchestrator.adapters.host.resources import resource
from orchestrator.core.errors import KedgeError

if TYPE_CHECKING:
    import jinja2

_PLAIN_SSH_VALUE = re.compile(r"[A-Za-z0-9_./:@~+%-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class TemplateError(KedgeError):
    """A template can't be rendered with the given values."""


def render(name: str, **values: object) -> str:
    """Render a template; pure text in, text out.

    Args:
        name: relative to `templates/`, for example `systemd/kedge-run.service.j2`.
        values: the values of the names in the template.

    Raises:
        TemplateError: there is no such template, it names a value that was not given, or a value can't be
            expressed in the template's language.
    """
    # Imported here, because `status` imports modules that can render, and must not wait for jinja2.
    import jinja2  # noqa: PLC0415

    try:
        return _environment().get_template(name).render(**values)
    except jinja2.UndefinedError as err:
        raise TemplateError(
            f"the template {name} lacks a value",
            why=str(err.message),
            fix="pass the value to render(), or remove the name from the template",
        ) from err
    except jinja2.TemplateNotFound as err:
        raise TemplateError(
            f"there is no template {name}",
            why="templates/ has no such file",
            fix="install kedge again",
        ) from err
    except jinja2.TemplateError as err:
        raise TemplateError(
            f"the template {name} can't be read", why=str(err.message), fix="correct the template"
        ) from err


def quote_shell(value: object) -> str:
    """Quote a word, or each word of a list, for a POSIX shell."""
    words = value if isinstance(value, list | tuple) else [value]
    return shlex.join(str(word) for word in words)


def quote_systemd(value: object) -> str:
    """Quote a value of a systemd unit, such as Environment= (systemd.syntax(7), systemd.unit(5) specifiers).

    Raises:
        TemplateError: it holds a line break or another control character.
    """
    text = _without_control_characters(value, "a systemd unit")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def escape_systemd(value: object) -> str:
    """Escape free text of a systemd unit, such as Description=, which knows no quotes.

    Raises:
        TemplateError: it holds a control character, or a backslash, which would join lines.
    """
    text = _without_control_characters(value, "a systemd unit")
    if "\\" in text:
        raise _unwritable(text, "a systemd unit", "a backslash")
    return text.replace("%", "%%")


def quote_systemd_executable(value: object) -> str:
    """Quote the program of ExecStart=, in whose path systemd expands no variable and allows no quote.

    Raises:
        TemplateError: it holds a quote, a backslash or a control character.
    """
    text = str(value)
    if any(part in text for part in ("'", '"', "\\")):
        raise _unwritable(text, "a systemd unit as a program's path", "a quote or a backslash")
    return quote_systemd(text)


def quote_ssh_config(value: object) -> str:
    """Quote a value of ssh_config(5), where `%` begins a token.

    Raises:
        TemplateError: it holds what ssh_config can't express: a line break, a quote, a backslash, or `${`.
    """
    text = _without_control_characters(value, "an ssh configuration")
    if any(part in text for part in ('"', "'", "\\", "${")):
        raise _unwritable(text, "an ssh configuration", "a quote, a backslash or ${")
    escaped = text.replace("%", "%%")
    return escaped if _PLAIN_SSH_VALUE.fullmatch(escaped) else f'"{escaped}"'


@cache
def _environment() -> jinja2.Environment:
    import jinja2  # noqa: PLC0415 - as in render()

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource("templates")),
        undefined=jinja2.StrictUndefined,
        # Units, shell scripts and ssh configurations: HTML's escapes would break them.
        autoescape=False,  # noqa: S701
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "shell": quote_shell,
        "systemd": quote_systemd,
        "systemd_text": escape_systemd,
        "systemd_executable": quote_systemd_executable,
        "ssh_config": quote_ssh_config,
    }
    return environment


def _without_control_characters(value: object, where: str) -> str:
    text = str(value)
    if _CONTROL.search(text):
        raise _unwritable(text, where, "a line end or another control character")
    return text


def _unwritable(text: str, where: str, what: str) -> TemplateError:
    return TemplateError(
        f"{text!r} can't be written into {where}",
        why=f"it holds {what}",
        fix="choose a name or a path without it",
    )
