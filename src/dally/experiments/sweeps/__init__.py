"""Sweeps: many scenarios under many policies, paired by seed, resumable, with intervals."""
