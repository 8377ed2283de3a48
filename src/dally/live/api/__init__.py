"""The service over HTTP: REST under /v1, a stream of events, metrics (docs/live-api.md)."""
