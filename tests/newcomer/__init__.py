"""A newcomer's computer: a Debian with git, make and Python, and an ordinary user with sudo."""
