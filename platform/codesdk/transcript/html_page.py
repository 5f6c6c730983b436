"""Renders a transcript as one HTML page: no script, no external resources, all content escaped."""

from __future__ import annotations

from html import escape

from codesdk.transcript.fold import Transcript, TranscriptEntry
from codesdk.transcript.rendering import line, render_block, summary

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
pre {{ background: #f6f6f6; padding: .75rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere }}
.error pre {{ background: #fdeeee }}
h2 {{ font-size: 1rem; margin: 1.5rem 0 .25rem }}
h3 {{ font-size: .85rem; font-weight: normal; color: #555; margin: 0 }}
</style>
</head>
<body>
"""


def render(transcript: Transcript) -> str:
    """Render the page."""
    title = escape(f"Session {line(transcript.session_id)}")
    about = "\n".join(f"<li>{escape(name)}: {escape(value)}</li>" for name, value in summary(transcript))
    entries = "\n".join(_render_entry(entry) for entry in transcript.entries)
    return f"{_HEAD.format(title=title)}<h1>{title}</h1>\n<ul>\n{about}\n</ul>\n{entries}\n</body>\n</html>\n"


def _render_entry(entry: TranscriptEntry) -> str:
    parts = [f"<h2>{escape(entry.message.role)} · <time>{escape(line(entry.time))}</time></h2>"]
    for piece in map(render_block, entry.message.content):
        heading = f"<h3>{escape(piece.heading)}</h3>" if piece.heading else ""
        body = f"<pre>{escape(piece.body)}</pre>"
        parts.append(f'<div class="error">{heading}{body}</div>' if piece.is_error else f"<div>{heading}{body}</div>")
    return "\n".join(parts)
