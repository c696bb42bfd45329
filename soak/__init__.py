"""Campaigns of faults against Headwater, as many as fit into so many minutes. `python3 -m soak --help` says how."""
