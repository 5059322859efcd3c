"""`python -m shortlist` is the `shortlist` command."""

from shortlist.cli import main

if __name__ == "__main__":
    main()
