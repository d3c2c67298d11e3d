"""The object store, as the laptop sees it: results of runs read back, and what machines find there at boot.

`status` and `cost` import this package: the S3 kind and its SDK (`s3`, `stage`) are imported by whoever makes it.
"""

from orchestrator.adapters.objects.folder import FolderStore

__all__ = ["FolderStore"]
