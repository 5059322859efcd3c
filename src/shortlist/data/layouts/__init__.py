"""Public layouts: the forms in which data sets for recommendation are published, recognised and read as they are."""

from shortlist.data.layouts.layout_registry import LAYOUTS, read_parts, recognise

__all__ = ["LAYOUTS", "read_parts", "recognise"]
