from orchestrator.cli.program import namespace, take_over

__all__ = ["namespace"]

take_over()
