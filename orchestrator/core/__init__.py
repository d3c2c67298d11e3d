"""The domain as pure data and functions, without I/O: jobs, offers, plans, prices, policies, and the ports."""
