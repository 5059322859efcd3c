"""A model on disk: `manifest.json`, one safetensors file of arrays, one Arrow file per table of ids.

Nothing in such a directory is ever executed, and the room knows nothing about recommenders: it keeps a name, settings,
arrays and ids, whole or not at all. A crash at any moment of `save_model` leaves the old model or the new one.
"""

from __future__ import annotations

from shortlist.storage.check_target import check_writable
from shortlist.storage.load import is_model, load_model, read_manifest
from shortlist.storage.manifest import ArrayEntry, FileEntry, Manifest, TableEntry
from shortlist.storage.save import save_model
from shortlist.storage.stored_model import StoredModel

__all__ = [
    "ArrayEntry",
    "FileEntry",
    "Manifest",
    "StoredModel",
    "TableEntry",
    "check_writable",
    "is_model",
    "load_model",
    "read_manifest",
    "save_model",
]
