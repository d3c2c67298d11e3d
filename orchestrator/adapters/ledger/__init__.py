"""The ledger in an SQLite file, its migrations, and quick reads of it: names of runs, one-time costs."""
