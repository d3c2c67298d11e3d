"""`find-lr`, `find-batch` and `advise`: find good settings by measuring, or by tracing a step. Nothing is saved."""
