"""The operations of AWS that kedge and its tests use: read from their source, so that nobody has to keep a list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from botocore import xform_name
from botocore.model import ListShape, MapShape, OperationModel, Shape, StructureShape

from tests.cloudbox.aws.model.decided_batch import OPERATIONS
from tests.cloudbox.aws.model.sent import model_of

SERVICES = ("budgets", "cloudformation", "ec2", "iam", "pricing", "s3", "scheduler", "service-quotas", "ssm", "sts")
_OF_THE_AGENT = frozenset(
    {"get_object", "put_object", "head_object", "list_objects_v2", "create_multipart_upload", "upload_part"}
    | {"complete_multipart_upload", "abort_multipart_upload", "list_multipart_uploads", "list_parts"}
)
"""S3's operations that the agent signs by itself, and those that boto3's transfers make of uploads."""
_CALLED = re.compile(r"\.([a-z]\w+)\b|\"([a-z]+(?:_[a-z0-9]+)+)\"")
_ROOT = Path(__file__).parents[4]
PRODUCT = ("orchestrator",)
TESTS = ("tests/adapters", "tests/agent", "tests/cloudbox", "tests/in_cloudbox", "tests/contract", "tests/e2e")


def used_operations(*folders: str) -> Iterator[OperationModel]:
    """Return every operation whose name stands somewhere in these folders as boto3 writes it; rather too many.

    With the tests' folders also those that the scripts of an export use, whose other members nobody has decided.
    """
    if set(folders) & set(TESTS):
        yield from (model_of(service).operation_model(name) for service, names in OPERATIONS.items() for name in names)
    source = "\n".join(path.read_text() for folder in folders for path in sorted((_ROOT / folder).rglob("*.py")))
    named = _OF_THE_AGENT | {name for pair in _CALLED.findall(source) for name in pair}
    for service in SERVICES:
        model = model_of(service)
        for operation in model.operation_names:
            if xform_name(operation) in named:
                yield model.operation_model(operation)


def members_of(operation: OperationModel) -> Iterator[tuple[str, str, Shape]]:
    """Return what a request of an operation is made of: structure, member, and the member's shape."""
    waiting: list[Shape] = [operation.input_shape] if operation.input_shape else []
    seen: set[str] = set()
    while waiting:
        match waiting.pop():
            case StructureShape() as shape if shape.name not in seen:
                seen.add(shape.name)
                for member, each in shape.members.items():
                    yield shape.name, member, each
                    waiting.append(each)
            case ListShape() as shape:
                waiting.append(shape.member)
            case MapShape() as shape:
                waiting.append(shape.value)
            case _:
                pass
