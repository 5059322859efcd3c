"""The `shortlist` command. Heavy packages are imported only when a command needs them, so `--help` is instant."""

from shortlist.cli.app import app, main

__all__ = ["app", "main"]
