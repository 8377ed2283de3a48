"""Experiments: scenarios run and measured, written to folders, swept over axes, run again and compared."""
