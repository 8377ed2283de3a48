"""Dally: which job runs next, on which GPUs, given that distance costs time."""

__version__ = "0.1.0"
