"""Draws answers, plans and progress. It knows no command and changes nothing."""
