"""Style and headers of the approval page: no script, no external resources."""

from __future__ import annotations

import base64
import hashlib

LIGHT = {
    "bg": "#f6f7f9",
    "card": "#ffffff",
    "text": "#1b1f24",
    "soft": "#57606a",
    "line": "#d0d7de",
    "code": "#f2f4f7",
    "mark": "#ffe08a",
    "mark-text": "#3b2300",
    "high": "#b3261e",
    "high-bg": "#fdecea",
    "medium": "#8a5300",
    "medium-bg": "#fff4e0",
    "low": "#1a6b36",
    "low-bg": "#e8f5ec",
    "link": "#0b57d0",
    "yes": "#1a6b36",
    "yes-text": "#ffffff",
    "no": "#b3261e",
}
"""Colours by name; the names are the style's variables."""
DARK = {
    "bg": "#0f1216",
    "card": "#181c22",
    "text": "#e8eaed",
    "soft": "#a3acb8",
    "line": "#343b45",
    "code": "#11151a",
    "mark": "#6b4e00",
    "mark-text": "#ffedb8",
    "high": "#ff9d94",
    "high-bg": "#3a1715",
    "medium": "#ffc46b",
    "medium-bg": "#37270c",
    "low": "#84d69c",
    "low-bg": "#12301c",
    "link": "#8ab4f8",
    "yes": "#27783f",
    "yes-text": "#ffffff",
    "no": "#ff9d94",
}


def _variables(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{value}" for name, value in colours.items())


STYLE = f"""
:root{{color-scheme:light dark;{_variables(LIGHT)}}}
@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}
*{{box-sizing:border-box}}
body{{font:16px/1.5 system-ui,sans-serif;color:var(--text);background:var(--bg);margin:0;overflow-wrap:anywhere}}
main{{max-width:46rem;margin:0 auto;padding:1rem}}
h1{{font-size:1.35rem;line-height:1.25;margin:.1rem 0 .8rem}}
h2{{font-size:1rem;margin:0 0 .5rem}}
p{{margin:.4rem 0}}
section,details.fold,.outcome,.note,fieldset{{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:.8rem 1rem;margin:0 0 .8rem}}
.soft,dt{{color:var(--soft)}}
.small{{font-size:.875rem}}
.tool{{color:var(--soft);margin:0;font-size:.9rem}}
pre,code{{font-family:ui-monospace,SFMono-Regular,Menlo,monospace}}
pre{{font-size:.9rem;line-height:1.5;white-space:pre-wrap;overflow-wrap:anywhere;margin:.4rem 0;padding:.6rem .75rem;background:var(--code);border:1px solid var(--line);border-radius:8px}}
pre.line{{font-size:1.05rem}}
code{{font-size:.9rem;background:var(--code);border-radius:4px;padding:.05rem .3rem}}
mark{{background:var(--mark);color:var(--mark-text);border-radius:3px;padding:.05rem .15rem;font-weight:700;display:inline-block;max-width:100%;white-space:pre-wrap}}
pre.line span{{white-space:nowrap}}
mark{{position:relative}}mark::before,mark::after{{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden;content:" [marked: "}}
mark::after{{content:"] "}}
ul.effects{{list-style:none;margin:0;padding:0}}
.effects li{{border-left:5px solid;border-radius:6px;padding:.45rem .7rem;margin:.4rem 0}}
.effects strong{{margin-right:.4rem}}
.effects code{{color:var(--text);display:inline-block;margin:.1rem .3rem .1rem 0}}
.high{{color:var(--high);background:var(--high-bg)}}.medium{{color:var(--medium);background:var(--medium-bg)}}.low{{color:var(--low);background:var(--low-bg)}}
.outcome{{border-left:5px solid var(--low)}}.outcome.ended{{border-left-color:var(--high)}}.outcome strong{{font-size:1.1rem}}
.note{{border-left:5px solid var(--medium)}}
dl{{display:grid;grid-template-columns:max-content 1fr;gap:.3rem 1rem;margin:.6rem 0 0}}
dd{{margin:0}}
ul.plain{{list-style:none;margin:.3rem 0;padding:0}}
summary{{cursor:pointer;padding:.2rem 0}}
.add{{color:var(--low)}}.cut{{color:var(--high)}}
fieldset label{{display:block;padding:.5rem 0}}legend{{font-weight:600;padding:0 .3rem}}
label.field{{font-weight:600;display:block;margin:.2rem 0}}
textarea,input[type=password]{{width:100%;font:inherit;color:inherit;background:var(--card);border:1px solid var(--soft);border-radius:8px;padding:.6rem}}
textarea{{min-height:3.6rem;resize:vertical}}
.bar{{position:sticky;bottom:0;background:var(--card);border-top:1px solid var(--line);padding:.6rem max(1rem,env(safe-area-inset-left)) calc(.6rem + env(safe-area-inset-bottom))}}
.bar>div{{display:flex;gap:.8rem;max-width:44rem;margin:0 auto}}
.bar p{{max-width:44rem;margin:0 auto .4rem}}
button{{flex:1;font:inherit;font-weight:700;min-height:3rem;border-radius:10px;border:2px solid var(--no);background:var(--card);color:var(--no);cursor:pointer}}
button.yes{{border-color:var(--yes);background:var(--yes);color:var(--yes-text)}}
a{{color:var(--link)}}
:focus-visible{{outline:3px solid var(--link);outline-offset:2px}}
a.skip{{position:absolute;left:-99rem}}a.skip:focus{{left:1rem;top:.5rem;background:var(--card);padding:.5rem .8rem;border-radius:8px;z-index:1}}
html{{scroll-padding-bottom:7rem}}
"""
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
PAGE_HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "referrer-policy": "same-origin",  # the link is a credential; `no-referrer` would hide the form's origin from us
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-robots-tag": "noindex, nofollow",
    "cross-origin-opener-policy": "same-origin",
}
