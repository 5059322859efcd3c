"""How parameters are found (section 5): half-steps of alternating least squares, the loop of epochs, elastic nets."""
