"""The secrets sweep: a different secret in each possible place, a whole life of a run, then a search for all of them.

`secrets` makes them and finds them in bytes, encoded or packed; `watching` sees every process that starts;
`folders` reads what a life has left behind; `table` says what may be where, and judges; `lives` is what the three
tests have in common. The tests are tests/e2e, tests/cloudbox and tests/in_cloudbox/digitalocean/test_secrets_sweep.py.
"""
