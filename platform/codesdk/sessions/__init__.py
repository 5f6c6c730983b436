"""Opens and closes sessions; the task engine will move in beside them."""

from codesdk.domain.records import Session
from codesdk.sessions.service import SessionService
from codesdk.sessions.session import NewSession, NoHost, SessionSandbox, SessionUnknown

__all__ = ["NewSession", "NoHost", "Session", "SessionSandbox", "SessionService", "SessionUnknown"]
