"""The ledger in an SQLite file, and quick reads of it: names of runs, one-time costs."""
