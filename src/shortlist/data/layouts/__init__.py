"""Public layouts: detect and read data sets in the file layouts in which they are published."""

from shortlist.data.layouts.detect import recognise
from shortlist.data.layouts.layout_registry import LAYOUTS, read_parts

__all__ = ["LAYOUTS", "read_parts", "recognise"]
