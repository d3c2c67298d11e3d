"""Droplets and what is done to them."""
