"""The credentials that every box's environment has."""

from __future__ import annotations

OPERATOR_KEY = "AKIAKEDGEBOXOPERATOR"
OPERATOR_SECRET = "kedge-box-operator-secret-key-0000000000"
