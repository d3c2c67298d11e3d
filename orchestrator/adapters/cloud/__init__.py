"""A machine's life at any cloud: created exactly once, found again, ended for good.

A cloud only answers (`CloudApi`: each method is one request or one listing); the modules here decide. Nothing here
knows a cloud's SDK, and no cloud has its own retry loop, look-up or machine record. A cloud is
`Traits`, a `CloudApi` with its `RunResources`, an `OfferSource`, and a `make()` that hands them to `CloudProvider`.
"""
