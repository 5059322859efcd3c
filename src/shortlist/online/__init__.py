"""Online users (section 6.3 of the article): events as they arrive, and the embedding they give."""

from shortlist.online.user_state import Event, UserState
from shortlist.online.user_states import UserStates

__all__ = ["Event", "UserState", "UserStates"]
