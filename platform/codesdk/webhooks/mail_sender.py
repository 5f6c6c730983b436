"""Sends mail through the operator's SMTP server."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import format_datetime
from urllib.parse import unquote, urlsplit

from codesdk.webhooks.delivery import Failure
from codesdk.webhooks.destination import mailbox_of
from codesdk.webhooks.endpoint import InvalidEndpoint
from codesdk.webhooks.message_text import lines, summary_lines, title_of
from codesdk.webhooks.outgoing_message import AnswerLink, OutgoingMessage, SendResult

TIMEOUT_S = 15.0
"""Seconds for one step of the SMTP exchange."""


@dataclass(frozen=True)
class MailServer:
    """Address and credentials of an SMTP server."""

    host: str
    port: int
    tls: bool
    """Implicit TLS. Without it, STARTTLS is used if offered, and required with a password."""
    user: str = ""
    password: str = ""

    @classmethod
    def of(cls, url: str) -> MailServer:
        """`smtps://user:password@host:port`, or `smtp://…`; already validated by the settings."""
        parts = urlsplit(url)
        tls = parts.scheme == "smtps"
        return cls(
            host=parts.hostname or "",
            port=parts.port or (465 if tls else 587),
            tls=tls,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
        )


class MailSender:
    """Plain text, one recipient."""

    def __init__(self, server: MailServer | None, sender: str, tls: Callable[[], ssl.SSLContext]) -> None:
        self._server = server
        self._from = sender
        self._tls = tls

    def check(self, target: str) -> str:
        """The mail address.

        Raises:
            InvalidEndpoint: not a mail address, or no SMTP server is configured.
        """
        if self._server is None:
            raise InvalidEndpoint(
                "This installation sends no mail.", advice="An operator sets CODESDK_SMTP_URL and CODESDK_MAIL_FROM."
            )
        return mailbox_of(target)

    def send(self, outgoing: OutgoingMessage) -> SendResult:
        """Hand the mail to the server. It counts as delivered once the server has accepted it."""
        if self._server is None:
            return SendResult(failure=Failure.UNSENDABLE, detail="CODESDK_SMTP_URL is not set")
        try:
            return self._submit(self._server, render_mail(outgoing, self._from))
        except (smtplib.SMTPException, OSError) as error:
            return _failure(error)

    def _submit(self, server: MailServer, mail: EmailMessage) -> SendResult:
        with self._connection(server) as connection:
            if not server.tls:
                connection.ehlo()
                if server.user or connection.has_extn("starttls"):
                    connection.starttls(context=self._tls())
            if server.user:
                connection.login(server.user, server.password)
            connection.send_message(mail)
        return SendResult(status=250)

    def _connection(self, server: MailServer) -> smtplib.SMTP:
        if server.tls:
            return smtplib.SMTP_SSL(server.host, server.port, timeout=TIMEOUT_S, context=self._tls())
        return smtplib.SMTP(server.host, server.port, timeout=TIMEOUT_S)


def _failure(error: smtplib.SMTPException | OSError) -> SendResult:
    match error:
        case smtplib.SMTPResponseException():
            code = error.smtp_code
            return SendResult(status=code, failure=Failure.STATUS, detail=f"the server answered {code}")
        case smtplib.SMTPRecipientsRefused():
            code = next(iter(error.recipients.values()))[0]
            return SendResult(status=code, failure=Failure.STATUS, detail=f"the server refused the recipient: {code}")
        case smtplib.SMTPException():  # a subclass of OSError, so it comes first
            return SendResult(failure=Failure.NO_ANSWER, detail=type(error).__name__)
        case TimeoutError():
            return SendResult(failure=Failure.TIMEOUT, detail=f"no answer within {TIMEOUT_S:g} s")
        case ssl.SSLError():
            return SendResult(failure=Failure.TLS, detail=f"TLS: {error.reason or type(error).__name__}")
        case _:
            return SendResult(failure=Failure.UNREACHABLE, detail=error.strerror or type(error).__name__)


def render_mail(outgoing: OutgoingMessage, sender: str) -> EmailMessage:
    """The mail. The email library refuses header values with line breaks; `heading` has none."""
    mail = EmailMessage()
    mail["From"] = sender
    mail["To"] = outgoing.target
    mail["Subject"] = title_of([item.message for item in outgoing.items])[:200]
    mail["Date"] = format_datetime(outgoing.at)
    mail["Message-ID"] = f"<{outgoing.id}@{sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    if outgoing.more:
        said = [line for item in outgoing.items for line in (*summary_lines(item.message), *_link(item.answer), "")]
    else:
        said = [*_link(outgoing.answer), *([""] if outgoing.answer else []), *lines(outgoing.message)]
    mail.set_content("\n".join(said) + "\n")
    return mail


def _link(answer: AnswerLink | None) -> list[str]:
    return ["Review and decide (this link works once, and only for you):", answer.page] if answer else []
