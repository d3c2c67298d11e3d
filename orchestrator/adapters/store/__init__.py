"""The object store on the laptop's side: reads runs' results, and uploads what machines need at boot.

`status` and `cost` import this package, so the SDK (`s3_sdk`) is imported only when a bucket is first used.
"""
