"""`shortlist doctor`: the command, its checks, and the probes that run in separate processes."""
