"""The secrets sweep: a distinct secret in every place for one, a whole life of a run, then a search for all of them.

`secrets` makes them and finds them in bytes, whatever they are wrapped in; `watching` sees every process that starts;
`folders` reads what a life has left behind; `table` says what may be where, and judges; `lives` is what the three
tests have in common. The tests are tests/e2e, tests/cloudbox and tests/in_cloudbox/digitalocean/test_secrets_sweep.py.
"""
