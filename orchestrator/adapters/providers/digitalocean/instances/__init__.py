"""Droplets at the API: request, listings, creation, deletion, refusals. `adapters/cloud` decides about them."""
