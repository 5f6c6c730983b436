"""Authenticates MCP requests into a session: by session token, login, or API key."""

from __future__ import annotations

from codesdk.domain.subjects import Subject
from codesdk.sessions.service import SessionService
from codesdk.sessions.session import NewSession, SessionUnknown
from codesdk.storage.writer import Unit, Writer
from codesdk.tenancy.access import AccessAllowed, Action, Target, decide_access, may_attempt, require
from codesdk.tenancy.credentials import KEY_PREFIX
from codesdk.tenancy.identity_directory import IdentityDirectory
from codesdk.tenancy.logins import LoginResult, LoginService, is_token
from codesdk.tenancy.principal import Principal, Unauthenticated

LOGIN_RUNTIME = "mcp-login"
"""The `runtime` of sessions opened by a login."""


class SessionAuthenticator:
    """Finds the session of a request. For use in threads."""

    def __init__(
        self, *, directory: IdentityDirectory, logins: LoginService, sessions: SessionService, writer: Writer
    ) -> None:
        self._directory = directory
        self._logins = logins
        self._sessions = sessions
        self._writer = writer

    def subject(self, credential: str, named: str | None, *, opens: bool, again: bool = False) -> Subject:
        """The subject of a request: the caller in its session.

        Args:
            credential: the bearer token.
            named: the session that the request names, if any.
            opens: open a session for a login that has none.
            again: recheck of an authenticated caller; writes nothing.

        Raises:
            Unauthenticated: the credential is invalid, or doesn't open a session.
            SessionUnknown: the caller has no such session.
            Forbidden: the caller may not make calls.
            Fault: see `LoginService.log_in` and `SessionService.open`.
        """
        found = self._authenticate(credential, named, opens=opens, again=again)
        # Checks current roles: a principal that lost the permission makes no calls in its old sessions either.
        target = Target(tenant_id=found.tenant_id, session_id=found.session_id)
        decision = decide_access(found, Action.CALLS_MAKE, target)
        if not isinstance(decision, AccessAllowed):
            require(decision, Unauthenticated("This session token is not valid."))
        return found

    def _authenticate(self, credential: str, named: str | None, *, opens: bool, again: bool) -> Subject:
        if credential.startswith(KEY_PREFIX):
            return self._own_session(self._directory.principal(credential), _require_session_id(named))
        if is_token(credential) and self._logins.issuers:
            entered = self._logins.log_in(credential, again=again)
            return (
                self._own_session(entered.principal, named)
                if named is not None
                else self._login_session(entered, opens=opens)
            )
        found = self._directory.subject(credential)
        if named not in (None, found.session_id):
            raise _session_unknown()  # a session token opens only its own session
        return found

    def _own_session(self, principal: Principal, session: str) -> Subject:
        found = self._directory.subject_in(principal, session)
        if found is None:
            raise _session_unknown()
        return found

    def _login_session(self, entered: LoginResult, *, opens: bool) -> Subject:
        """Return the subject of the session opened for this login. Open a new session if that one is closed."""
        principal = entered.principal
        known = self._directory.subject_in(principal, entered.session_id) if entered.session_id is not None else None
        if known is not None:
            return known
        if not opens:
            raise SessionUnknown("No session is open for this login.", advice="Send `initialize` again to open one.")
        # Checked first: otherwise a session that the login may not use would stay open, with its sandbox.
        require(may_attempt(principal, Action.SESSIONS_OPEN), Unauthenticated("This login may not do anything here."))
        wish = NewSession(**entered.wish.model_dump(), runtime=LOGIN_RUNTIME)

        def open_one(unit: Unit) -> str:
            session = self._logins.session(unit, principal)
            if session is not None:
                return session  # another request opened it first
            made, _token = self._sessions.open_in_unit(unit, principal, wish)
            self._logins.keep_session(unit, principal, made.id)
            return made.id

        return self._own_session(principal, self._writer.run(open_one))


def _require_session_id(named: str | None) -> str:
    if named is None:
        raise Unauthenticated(
            "An API key alone does not select a session.",
            advice="Send the header CodeSDK-Session with the id of an open session of yours, or use a session's token.",
        )
    return named


def _session_unknown() -> SessionUnknown:
    return SessionUnknown("There is no such session of yours, or it is closed.")
