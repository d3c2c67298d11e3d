"""AWS calls and answers on the wire, and moto's state."""
