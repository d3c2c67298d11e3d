"""The commands, by topic, and the steps that they share."""
