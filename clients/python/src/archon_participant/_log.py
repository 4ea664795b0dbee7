"""Log of the package. The service installs its handlers and filters, so they may raise: that must not end a thread of the
package."""

import logging
from typing import Any, Callable

_logger = logging.getLogger("archon_participant")


def log(level: int, message: str, *arguments: object) -> None:
    """Logs a message. Does not raise."""
    _guard(_logger.log, level, message, *arguments)


def log_exception(message: str, *arguments: object) -> None:
    """Logs a message with the exception that is being handled. Does not raise."""
    _guard(_logger.exception, message, *arguments)


def _guard(write: Callable[..., None], *arguments: Any) -> None:
    try:
        write(*arguments)
    except BaseException:
        # Also `SystemExit`. There is no other place to report it.
        pass
