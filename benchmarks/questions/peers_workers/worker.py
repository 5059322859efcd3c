"""Run one library inside its own environment: commands come in line by line, and every answer is a line of JSON.

    PYTHON worker.py MODULE FOLDER

`MODULE` names a file of this folder that defines `Peer`, `FOLDER` holds the data. A command is the name of a method of
`Peer`, then its arguments. `peers_run.py` starts workers and talks to them; nothing here imports Shortlist but
`shortlist_peer.py`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path


def main() -> None:
    module, folder = sys.argv[1], Path(sys.argv[2]).absolute()
    sys.argv[1:] = []  # RecBole reads the command line
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    os.chdir(folder)  # RecBole writes logs where it stands
    peer = importlib.import_module(module).Peer(folder)
    for line in sys.stdin:
        command, *arguments = line.split()
        try:
            answer = getattr(peer, command)(*arguments)
        except Exception as error:  # the parent reports it
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
