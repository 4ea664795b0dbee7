"""Errors."""


class AgentError(Exception):
    """The agent refused a request, or did not answer.

    ``kind`` is a kind of docs/reference/agent.md, or ``unreachable``.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class NotOwned(Exception):
    """The partition accepts no new work here: another process may own it."""


class Lost(Exception):
    """The grant is not valid now: stop acting for the partition."""
