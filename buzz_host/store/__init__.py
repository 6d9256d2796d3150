"""One SQLite file for everything that Buzz remembers: its schema, its migrations, and one writer in each process.

A `Transaction` is where capabilities meet: the ledger's `append(tx, …)` and the bus's `claim(tx, …)` become durable
together or not at all. What `Store.write` has answered is on disk (OPS-02, OPS-03).
"""

from buzz_host.store.database import Store
from buzz_host.store.errors import StoreClosed, StoreDamaged, StoreError
from buzz_host.store.reading import read_only
from buzz_host.store.schema import MIGRATIONS, Migration
from buzz_host.store.writer import Transaction

__all__ = ["MIGRATIONS", "Migration", "Store", "StoreClosed", "StoreDamaged", "StoreError", "Transaction", "read_only"]
