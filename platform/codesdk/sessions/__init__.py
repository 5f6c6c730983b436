"""Opens and closes sessions; the task engine will move in beside them."""

from codesdk.sessions.desk import Sessions
from codesdk.sessions.session import NewSession, NoHost, Session, SessionUnknown

__all__ = ["NewSession", "NoHost", "Session", "SessionUnknown", "Sessions"]
