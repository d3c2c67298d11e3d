"""A cloud in memory, with either idempotency strategy, that lags, loses answers and refuses as tests order.

`FakeCloud` is the account: its resources, and what bills. `FakeCloudApi` is one process's client of it, which can be
killed before and after each change of the world. So can `FakeRecords`, which shares the client's `Process`.
"""
