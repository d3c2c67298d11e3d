"""SSH: two transports behind `core.ports.Remote`, and the connector that chooses between them.

If a machine has a live control socket, a command uses the OpenSSH client over it. Otherwise it connects with fabric,
and leaves a control socket for the next command. Neither reads the user's SSH configuration, known hosts, agent or
keys.
"""
