"""Features of contexts and items: sparse matrices with named fields."""
