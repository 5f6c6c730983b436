"""Opens and closes sessions, and authenticates requests into them."""

from codesdk.domain.records import Session
from codesdk.sessions.service import SessionService
from codesdk.sessions.session import NewSession, NoHost, SessionSandbox, SessionUnknown

__all__ = ["NewSession", "NoHost", "Session", "SessionSandbox", "SessionService", "SessionUnknown"]
