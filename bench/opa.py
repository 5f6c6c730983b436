"""The rules of `policy.py` in Rego, evaluated by regopy (Microsoft's rego-cpp): OPA's language without OPA's server.

Without a wheel of regopy (there is one for x86-64 Linux), the bench reports that OPA is absent.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

ABSENT = "" if importlib.util.find_spec("regopy") else "regopy has no wheel for this machine"
_QUERY = "data.workspace.allow"
_YES = '{"expressions":[true]}'


def opa_call(size: int) -> Callable[[], bool]:
    """Return a call that matches the last of `size` rules: the policy is built once, the input new each time."""
    import regopy  # noqa: PLC0415 (it is not everywhere)

    rules = []
    for number in range(size):
        head, test = (
            ("permitted", f'startswith(input.path, "area{number}/")')
            if number % 10
            else ("forbidden", f'input.path == "area{number}/secret"')
        )
        rules.append(f'{head} if {{ "team{number}" in input.roles; input.tool == "workspace.write"; {test} }}')
    module = "\n".join(
        (
            "package workspace",
            "import rego.v1",
            "default allow := false",
            "default permitted := false",
            "default forbidden := false",
            "allow if { permitted; not forbidden }",
            *rules,
        )
    )
    interpreter = regopy.Interpreter()
    interpreter.add_module("workspace", module)
    bundle = interpreter.build(_QUERY, [])
    given = {"tool": "workspace.write", "roles": [f"team{size - 1}"], "path": f"area{size - 1}/a.py"}

    def decide() -> bool:
        interpreter.set_input(given)
        return str(interpreter.query_bundle(bundle)) == _YES

    return decide
