"""The outside: settings, job files, templates, ledger, SSH, object store, clock and providers."""
