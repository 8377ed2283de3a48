"""Commands for a service that schedules real jobs: thin over its API."""
