"""The service's own log: text for people, or a JSON object a line."""

from __future__ import annotations

import json
import logging
import sys

from dally.live.config import LogConfig

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        found = {"time": round(record.created, 6), "level": record.levelname.lower(), "logger": record.name,
                 "message": record.getMessage()}  # fmt: skip
        found |= {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)


class Lines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")


def set_up(config: LogConfig) -> None:
    """To standard error, where systemd and containers look for it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if config.format == "json" else Lines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("dally").setLevel(config.level.upper())
