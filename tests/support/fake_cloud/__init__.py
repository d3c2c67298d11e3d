"""A cloud in memory, with either strategy of idempotency, that lags, loses answers and refuses as it is told.

`FakeCloud` is the account: what is in it, what bills. `FakeCloudApi` is one process's way to it, and can be killed
before and after each thing that it does to the world; so can `FakeRecords`, which it shares its `Process` with.
"""
