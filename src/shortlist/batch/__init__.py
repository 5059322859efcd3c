"""Batch recommendations: the lists of every user, written to one file ahead of time."""

from shortlist.batch.list_writer import BatchResult, write_lists

__all__ = ["BatchResult", "write_lists"]
