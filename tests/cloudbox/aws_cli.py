"""Stands in for the AWS CLI in scripts under test: `aws SERVICE OPERATION --flag JSON-OR-TEXT`, and `aws s3 sync`.

Flags become parameters by botocore's models, as in the real program; requests go to AWS_ENDPOINT_URL.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import boto3
import jmespath  # type: ignore[import-untyped]
from botocore import xform_name


def main(words: list[str]) -> None:
    """Make one request, and print what `--query` asks for."""
    service, operation, *rest = words
    if service == "s3":
        return sync(*rest)
    client = boto3.client(service, region_name="us-east-1")  # type: ignore[call-overload]
    method = operation.replace("-", "_")
    model = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[method])
    members = {xform_name(name).replace("_", "-"): name for name in model.input_shape.members}
    flags = dict(zip(rest[::2], rest[1::2], strict=True))
    assert all(flag.startswith("--") for flag in flags), words
    output, query = flags.pop("--output", "json"), flags.pop("--query", "@")
    params: dict[str, Any] = json.loads(flags.pop("--cli-input-json", "{}"))
    for flag, value in flags.items():
        name = members[flag.removeprefix("--")]
        params[name] = _value(value, model.input_shape.members[name].type_name)
    answer = jmespath.search(query, getattr(client, method)(**params))
    print(answer if output == "text" else json.dumps(answer, default=str))
    return None


def _value(text: str, kind: str) -> Any:
    if text.startswith("file://"):
        text = Path(text.removeprefix("file://")).read_text()
    if kind == "list" and not text.startswith("["):
        return [text]
    if kind == "boolean":
        return text == "true"
    return json.loads(text) if kind in ("list", "structure", "map", "integer") else text


def sync(folder: str, address: str, *flags: str) -> None:
    """Upload a folder's files."""
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    left_out = [flags[place + 1] for place, flag in enumerate(flags) if flag == "--exclude"]
    client = boto3.client("s3", region_name="us-east-1")
    for path in Path(folder).rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not any(fnmatchcase(name, pattern) for pattern in left_out):
            client.put_object(Bucket=bucket, Key=f"{prefix}{name}", Body=path.read_bytes())


def install(folder: Path, endpoint: str) -> dict[str, str]:
    """Put `aws` into a folder; return the variables with which scripts find it, and it the endpoint."""
    folder.mkdir()
    program = folder / "aws"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__)} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


if __name__ == "__main__":
    main(sys.argv[1:])
