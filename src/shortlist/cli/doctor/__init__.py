"""`shortlist doctor`: the command, what it checks, and what it tries out in processes of their own."""
