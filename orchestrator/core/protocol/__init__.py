"""The messages between kedge and the agent, and the one decoder for the agent's answers."""
