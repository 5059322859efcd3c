"""The `shortlist` command. Nothing heavy is imported until a command needs it, so that `--help` answers at once."""

from shortlist.cli.app import app, main

__all__ = ["app", "main"]
