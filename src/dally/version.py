"""The version of the program, where everybody may ask for it."""

__version__ = "0.1.0"
