"""The store on one SQLite file."""

from holdfast.stores.sqlite.connection import same_file
from holdfast.stores.sqlite.leases import LeaseFile
from holdfast.stores.sqlite.store import SQLiteStore

__all__ = ["LeaseFile", "SQLiteStore", "same_file"]
