"""Clients of HTTP APIs that speak JSON: kinds of failure, retries, pace and authentication.

failures    the kinds of failure, and what each says about whether the request had its effect
repeating   which requests are retried, and for how long
client      the client of an API without an SDK: its rate limits, its key
"""
