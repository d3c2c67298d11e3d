"""Reads the number of one of a run's machines."""

from __future__ import annotations

from orchestrator.core.errors import BadRequestError


def choose_node(run_id: str, num_nodes: int, text: str) -> int:
    """Return the number of a node, as `--node` gives it; nodes are numbered by their ranks, from 0.

    Raises:
        BadRequestError: the run has no such node.
    """
    if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) < num_nodes:
        return int(text)
    there = f"its nodes: 0 to {num_nodes - 1}" if num_nodes > 1 else "it has one machine, which is node 0"
    raise BadRequestError(
        f"run {run_id} has no node {text!r}",
        why=there,
        fix="name one of them with --node, or leave --node out" if num_nodes > 1 else "leave --node out",
    )
