"""SSH: two transports behind `core.ports.Remote`, and the connector that chooses between them.

A command that finds a live control socket uses the OpenSSH client over it; one that finds none dials with
fabric and leaves a control socket for the next. Neither reads the user's own SSH configuration, known hosts,
agent or keys.
"""
