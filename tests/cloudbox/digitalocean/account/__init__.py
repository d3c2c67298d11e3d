"""An account at DigitalOcean in the box: calls, state, prices, faults."""
