"""What is known about contexts and items, as sparse matrices with named fields."""
