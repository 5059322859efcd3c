"""What was observed (section 2): events, their ids, splits of them, data sets."""
