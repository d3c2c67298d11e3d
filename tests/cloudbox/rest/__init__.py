"""What boxes with a REST API share: calls, routes, faults to order, the check against a description, meter, orders."""
