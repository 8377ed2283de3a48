"""The simulator: the simulated world, failures, lower bounds, and runs of one or many policies."""
