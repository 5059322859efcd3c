"""Saving and loading of models: `manifest.json`, one safetensors file of arrays, one Arrow file per table of ids.

Nothing in a model directory is ever executed. This package knows nothing about recommenders: it stores a name,
settings, arrays and ids. A crash at any moment of `save_model` leaves either the complete old model or the complete
new one.
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
