"""What kedge knows without touching anything: jobs, offers, plans and prices as pure data and functions."""
