"""Starts Python programs from processes that have imported what those programs import.

Most of a short command's time is imports. Here they are done once: a server imports the modules and waits, and each
program is forked from it. The program is a child of the test's own process, with its own argv, environment, folder,
streams, session, signals and exit code, as if it had been started normally. A program that can't be forked (another
interpreter, another `PYTHONPATH`, a system other than Linux) is started normally.
"""
