"""DigitalOcean's own description of its API.

The description is not part of this repository: without `../shared/specs/digitalocean-openapi.json` nothing is checked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cloudbox.rest.description import Description

FILE = Path(__file__).parents[5] / "shared/specs/digitalocean-openapi.json"


def load_description() -> Description | None:
    """Return the check of calls and answers where the description is present."""
    if not FILE.exists():
        return None
    spec: dict[str, Any] = json.loads(FILE.read_text())
    # Its schemas are marked as read-only, which openapi-core takes for "never in a request".
    spec["components"]["parameters"]["ssh_key_identifier"]["schema"] = {
        "anyOf": [{"type": "integer"}, {"type": "string"}]
    }
    # Of 2026-11: it lacks regions that are sold.
    spec["components"]["schemas"]["region_slug"]["enum"].append("atl1")
    return Description(spec, "https://api.digitalocean.com")
