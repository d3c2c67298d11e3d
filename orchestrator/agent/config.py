"""The run's configuration on disk: secrets apart from all else, in a file that only the user can read."""

from __future__ import annotations

import json
from dataclasses import replace

from .errors import RequestError
from .files import read_json, write_json
from .layout import Layout
from .parse import parse_run_config
from .wire import RunConfig, to_json


def write_run_config(layout: Layout, config: RunConfig) -> None:
    """Write run.json and secrets.json."""
    write_json(layout.secrets_file, config.secrets, mode=0o600, durable=True)
    # The job's variables may be private too, though nobody called them secrets.
    write_json(layout.run_file, to_json(replace(config, secrets={})), mode=0o600, durable=True)


def read_run_config(layout: Layout) -> RunConfig:
    """Read both.

    Raises:
        RequestError: nothing was started on this machine yet.
    """
    content = read_json(layout.run_file)
    if not content:
        raise RequestError("there is no run on this machine", fix="start one with `kedge launch` or `kedge start`")
    content["secrets"] = read_json(layout.secrets_file)
    return parse_run_config(json.dumps(content).encode())


def peek_run_config(layout: Layout) -> RunConfig | None:
    """Read both, or None where there is no run that can be read."""
    try:
        return read_run_config(layout)
    except RequestError:
        return None
