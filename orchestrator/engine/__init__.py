"""The only code that changes the world: observe a run, apply a plan, follow a command, settle the ledger."""
