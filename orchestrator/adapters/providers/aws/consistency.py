"""How late one part of AWS hears of what another has just made."""

from __future__ import annotations

from datetime import timedelta

APPEARS_IN = timedelta(seconds=30)
"""For as long may one part of AWS not know what another has just made (EC2 developer guide, "Eventual consistency")."""
