"""Everything else that an account has."""
