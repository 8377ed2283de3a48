"""A cluster's twin: its recorded past replayed and held against what happened, and only then what would have."""
