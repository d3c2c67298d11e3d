"""A newcomer's computer: a Debian that has git, make and Python, and an ordinary user with sudo."""
