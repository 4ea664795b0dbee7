"""Exclusive ownership of shards, through the agent ``archon participant`` on the same machine.

    with Participant("jobs", acquire=load, release=flush, lost=forget) as participant:
        epoch = participant.grant(3).check()

Python 3.9 or newer, standard library only. The protocol is in docs/reference/agent.md.
"""

from ._aio import AsyncParticipant
from ._errors import AgentError, Lost, NotOwned
from ._grant import Grant
from ._http import Owner, Whereabouts
from ._participant import Participant

__all__ = ["AgentError", "AsyncParticipant", "Grant", "Lost", "NotOwned", "Owner", "Participant", "Whereabouts"]
