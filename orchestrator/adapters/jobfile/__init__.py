"""Reads job files: YAML text becomes a frozen job, or one error that names every mistake.

document.py   YAML text -> text values with line numbers
models.py     the pydantic models of a job file; schema.py makes the editors' JSON schema from them
parts.py      the models of its blocks; provider_parts.py and task_parts.py those of `provider:` and `tasks:`
validate.py   values -> models; every mistake with its key, its line and the nearest valid key
values/       parsers of single values: names, paths, addresses, requirements
assembly/     models, a mode and flags -> core.job.Job
lookup/       finds job files, and decides which are trusted
overrides.py  the flags as typed
"""
