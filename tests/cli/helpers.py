import csv
import random
import re
import subprocess
import sys

ANSI = re.compile(r"\x1b\[")
ODD_ITEMS = [
    "tea",
    "a,b",
    "[bold]x[/bold]",
    "žluť 🐎",
    " spaced ",
    'quo"te',
    "@at",
    "tab\tid",
    "esc\x1b[31mred",
    "-dash",
]
ODD_USERS = ["ann", "bob, jr.", "--flag", "[red]", "Ünï", "u6", "u7", "u8"]


COLUMNS = ["--context", "user", "--item", "product"]
SMALL = ["--set", "dim=4", "--set", "epochs=3"]


def program(*args, timeout=60, **kwargs):
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "shortlist", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **kwargs)


def write_events(path, users, items, extra=()):
    """Two tastes: even users like even items; 12 events a user, in time order over users."""
    rng = random.Random(1)
    rows = []
    for t in range(12):
        for u, user in enumerate(users):
            liked = [item for k, item in enumerate(items) if (k + u) % 2 == 0 or rng.random() < 0.2]
            rows.append([user, rng.choice(liked), rng.randint(1, 5), f"2024-01-{t + 1:02d}", "mon" if t % 2 else "tue"])
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "product", "quantity", "when", "day"])
        writer.writerows([*rows, *extra])
    return path


def words(text):
    """A message without the frame that Typer draws around it, and without its line ends."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())
