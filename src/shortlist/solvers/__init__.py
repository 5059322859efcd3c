"""How parameters are found (section 5): exact rows, and the loop that alternates between the sides."""
