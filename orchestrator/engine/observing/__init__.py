"""Observes runs and machines, and brings the ledger into agreement with what exists."""
