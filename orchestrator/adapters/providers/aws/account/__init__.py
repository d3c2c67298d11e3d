"""The account level at AWS, independent of runs: one stack with a bucket and roles, its plan, and its setup."""
