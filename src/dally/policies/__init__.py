"""Policies: one file each, the paper's rule in it. Registered by entry point, built-in or not."""
