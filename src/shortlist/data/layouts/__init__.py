"""Public layouts: detect and read data sets in the file layouts in which they are published."""

from shortlist.data.layouts.layout_registry import LAYOUTS, read_parts, recognise

__all__ = ["LAYOUTS", "read_parts", "recognise"]
