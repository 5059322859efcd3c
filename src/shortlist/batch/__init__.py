"""Lists for everybody, written ahead of time to one file."""

from shortlist.batch.list_writer import BatchResult, write_lists

__all__ = ["BatchResult", "write_lists"]
