"""Users that move (section 6.3 of the article): their events as they come, and the embedding that follows from them."""

from shortlist.online.user_state import Event, UserState

__all__ = ["Event", "UserState"]
