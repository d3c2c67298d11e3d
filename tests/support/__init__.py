"""Test helpers that several folders share: laptops, waiting, terminals, fakes."""
