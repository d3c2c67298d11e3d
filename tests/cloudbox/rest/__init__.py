"""What boxes with a REST API share: requests, routes, ordered faults, OpenAPI checks, the meter, and control."""
