"""Shortlist."""
