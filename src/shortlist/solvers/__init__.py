"""Optimisation algorithms: alternating least squares, coordinate descent, SGD, elastic nets (section 5)."""
