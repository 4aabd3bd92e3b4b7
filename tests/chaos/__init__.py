"""Workers, producers and reapers under random faults: see `make chaos`."""
