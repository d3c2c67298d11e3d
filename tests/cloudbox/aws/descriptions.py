"""Amazon's descriptions of its services, as botocore has them: JSON files that take up to 0.3 s of CPU time to read.

Each session of boto3 reads them again, and moto makes several sessions. Only for the box's own process, which makes no
client: calls of S3 change its description (`remove_bucket_from_url_paths_from_model` in botocore.handlers).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from botocore.loaders import JSONFileLoader


@cache
def read_descriptions_once() -> None:
    """Have this process keep every description that it reads from now on. Best called before moto is imported."""
    read = JSONFileLoader.load_file
    kept: dict[str, Any] = {}

    def load_file(self: JSONFileLoader, file_path: str) -> Any:
        if file_path not in kept:
            found = read(self, file_path)
            if found is None:
                # There is no such file yet.
                return None
            kept[file_path] = found
        return kept[file_path]

    JSONFileLoader.load_file = load_file  # type: ignore[method-assign]
