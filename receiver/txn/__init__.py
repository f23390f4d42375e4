"""Transactions over the metadata engine: several statements as one commit, read at one time.

    transactions = TxnManager(engine)
    with transactions.transaction() as txn:
        txn.database.set_storage_group("root.turbine")
        txn.database.create_series("root.turbine.d1.s1", "FLOAT")

A transaction reads what was committed when it began, and what it has written itself (snapshot
isolation). It commits all of it or nothing, and of two that change the same row the one that
commits first wins: the other gets `WriteConflictError` with the name of the row. What it only read
may have changed meanwhile (write skew). There is one engine, so one participant: nothing here
commits in two phases.
"""
