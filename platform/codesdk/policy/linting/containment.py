"""Decides whether one matcher matches everything that another matches, without evaluating calls.

Conservative: True is certain, False may mean that it can't be determined.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from codesdk.domain.network.hostnames import covers
from codesdk.policy.faults import Unevaluable
from codesdk.policy.matching.argument_conditions import compile_test, normalized_folder
from codesdk.policy.schema.host_patterns import ANY
from codesdk.policy.schema.models import ArgumentTest, CommandMatcher, GlobToken, Matcher, PathMatcher, PatternToken
from codesdk.policy.shell.patterns import REST

_STAR_ONLY = re.compile(r"[^?\[\]]*")


def contains(wide: Matcher, narrow: Matcher) -> bool:
    """Return whether `wide` matches everything that `narrow` matches."""
    names = ("tool", "server", "tenant", "principal", "runtime")
    if not all(_names(getattr(wide, name), getattr(narrow, name)) for name in names):
        return False
    for name in ("classification", "mode", "roles"):
        wanted, given = getattr(wide, name), getattr(narrow, name)
        if wanted is not None and (given is None or not set(given) <= set(wanted)):
            return False
    if (wide.when is not None and wide.when != narrow.when) or not _paths(wide.paths, narrow.paths):
        return False
    labels = narrow.labels or {}
    # A pattern `*` also requires the label to exist.
    if not all(name in labels and _names(patterns, labels[name]) for name, patterns in (wide.labels or {}).items()):
        return False
    tests = narrow.args or {}
    if not all(pointer in tests and implies(tests[pointer], test) for pointer, test in (wide.args or {}).items()):
        return False
    return wide.command is None or (narrow.command is not None and _commands(wide.command, narrow.command))


def _paths(wide: PathMatcher | None, narrow: PathMatcher | None) -> bool:
    if wide is None or narrow is None:
        return wide is None
    return set(narrow.any_of) <= set(wide.any_of) and set(wide.except_ or ()) <= set(narrow.except_ or ())


def implies(narrow: ArgumentTest, wide: ArgumentTest) -> bool:
    """Return whether every value that passes `narrow` passes `wide`."""
    if narrow == wide:
        return True
    if narrow.exists is False or wide.exists is False:  # these match a missing value, which passes no other test
        return False
    if (values := allowed_values(narrow)) is not None:
        holds = compile_test(wide)
        return all(_holds(holds, value) for value in values)
    said = wide.model_fields_set - {"exists"}
    if said & {"eq", "in_"}:
        return False
    return (
        all(_bound_implied(narrow, wide, name) for name in said & {"gt", "ge", "lt", "le"})
        and ("beneath" not in said or _folders(wide.beneath or (), narrow.beneath))
        and ("glob" not in said or _names(wide.glob, narrow.glob))
        and ("host" not in said or _hosts(wide.host or (), narrow.host))
    )


def allowed_values(test: ArgumentTest) -> list[object] | None:
    """Return the only values that can pass; None if the test doesn't list them."""
    if "eq" in test.model_fields_set:
        return [test.eq]
    return list(test.in_) if test.in_ is not None else None


def _holds(holds: object, value: object) -> bool:
    try:
        return bool(holds(value))  # type: ignore[operator]
    except Unevaluable:
        return False


def _names(wide: Sequence[str] | None, narrow: Sequence[str] | None) -> bool:
    """Return whether each narrow name or pattern is a wide one, or matches a wide pattern with no wildcard but `*`."""
    if wide is None:
        return True
    if narrow is None:
        return "*" in wide
    return all(name in wide or any(_fits_into(name, pattern) for pattern in wide) for name in narrow)


def _fits_into(name: str, pattern: str) -> bool:
    return "[" not in name and _STAR_ONLY.fullmatch(pattern) is not None and fnmatchcase(name, pattern)


def _bound_implied(narrow: ArgumentTest, wide: ArgumentTest, name: str) -> bool:
    """Return whether one bound of `wide` follows from the bounds of `narrow`."""
    limit = getattr(wide, name)
    if name in ("gt", "ge"):
        if narrow.gt is not None and narrow.gt >= limit:
            return True
        return narrow.ge is not None and (narrow.ge > limit or (name == "ge" and narrow.ge == limit))
    if narrow.lt is not None and narrow.lt <= limit:
        return True
    return narrow.le is not None and (narrow.le < limit or (name == "le" and narrow.le == limit))


def _folders(wide: Sequence[str], narrow: Sequence[str] | None) -> bool:
    roots = [normalized_folder(root) for root in wide]
    found = [normalized_folder(root) for root in narrow or ()]
    return bool(found) and all(
        path is None or any(root is not None and (root in (".", path) or path.startswith(root + "/")) for root in roots)
        for path in found
    )


def _hosts(wide: Sequence[str], narrow: Sequence[str] | None) -> bool:
    if narrow is None:
        return False
    if ANY in narrow:
        return ANY in wide
    return ANY in wide or all(any(covers(pattern, name) for pattern in wide) for name in narrow)


def _commands(wide: CommandMatcher, narrow: CommandMatcher) -> bool:
    if (wide.any_flag, wide.forbid_flags) != (narrow.any_flag, narrow.forbid_flags) and (
        wide.any_flag or wide.forbid_flags
    ):
        return False
    if not set(narrow.env) <= set(wide.env) or (narrow.trust_arguments and not wide.trust_arguments):
        return False
    if not set(narrow.programs_in) <= set(wide.programs_in) or (narrow.background and not wide.background):
        return False
    if wide.arguments is not None and not set(narrow.arguments or ("",)) <= set(wide.arguments):
        return False
    if narrow.write_beneath and not _folders(wide.write_beneath, narrow.write_beneath):
        return False
    return all(any(_pattern(one, other) for one in wide.any_of) for other in narrow.any_of)


def _pattern(wide: Sequence[PatternToken], narrow: Sequence[PatternToken]) -> bool:
    if list(wide) == list(narrow):
        return True
    if any(_is_option(token) for token in (*wide, *narrow)):  # an option may be anywhere among the arguments
        return False
    rest = wide[-1] == REST
    tokens = list(wide[:-1] if rest else wide)
    words = list(narrow[:-1] if narrow[-1] == REST else narrow)
    if len(words) < len(tokens) or (not rest and (len(words) > len(tokens) or narrow[-1] == REST)):
        return False
    return all(_token(one, other) for one, other in zip(tokens, words, strict=False))


def _is_option(token: PatternToken) -> bool:
    return any(word.startswith("-") for word in _words(token))


def _words(token: PatternToken) -> list[str]:
    if isinstance(token, GlobToken):
        return []
    return [token] if isinstance(token, str) else list(token)


def _token(wide: PatternToken, narrow: PatternToken) -> bool:
    if isinstance(narrow, GlobToken):
        return isinstance(wide, GlobToken) and _names((wide.glob,), (narrow.glob,))
    if isinstance(wide, GlobToken):
        return all(fnmatchcase(word, wide.glob) for word in _words(narrow))
    return set(_words(narrow)) <= set(_words(wide))
