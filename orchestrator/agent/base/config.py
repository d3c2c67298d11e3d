"""Writes and reads the run's configuration; the secrets are in a file of their own that only the user can read."""

from __future__ import annotations

import json

from .errors import RequestError
from .files import read_json, write_json
from .layout import Layout
from .parse import parse_run_config
from .wire import RunConfig, to_json


def write_run_config(layout: Layout, config: RunConfig) -> None:
    """Write run.json and secrets.json."""
    write_json(layout.secrets_file, config.secrets, mode=0o600, durable=True)
    # The job's variables may be private too, even if they aren't declared as secrets.
    write_json(layout.run_file, to_json(config.replace(secrets={})), mode=0o600, durable=True)


def read_run_config(layout: Layout) -> RunConfig:
    """Read both files.

    Raises:
        RequestError: no run was started on this machine yet.
    """
    content = read_json(layout.run_file)
    if not content:
        raise RequestError("there is no run on this machine", fix="start one with `kedge launch` or `kedge start`")
    content["secrets"] = read_json(layout.secrets_file)
    return parse_run_config(json.dumps(content).encode())


def peek_run_config(layout: Layout) -> RunConfig | None:
    """Read both files; None if there is no run, or it can't be read."""
    try:
        return read_run_config(layout)
    except RequestError:
        return None
