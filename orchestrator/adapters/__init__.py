"""Everything that touches the world: settings, job files, ledger, SSH, object stores, clouds and this computer."""
