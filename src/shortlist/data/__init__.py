"""Data (section 2): events and their ids, features, splits, data sets."""
