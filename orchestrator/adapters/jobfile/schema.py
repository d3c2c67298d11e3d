"""The JSON schema of job files, for editors."""

from __future__ import annotations

from typing import Any

from orchestrator.adapters.jobfile.models import JobPart


def job_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a job file, made from the models that validate it."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **JobPart.model_json_schema()}
