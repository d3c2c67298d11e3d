"""The use case of `kedge selftest`: a run's whole life, probes of its machine, and the report."""
