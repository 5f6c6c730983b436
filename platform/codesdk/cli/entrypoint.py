"""Runs a command line and reports every error as one line and an exit code. Tracebacks go to a crash log."""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import NoReturn

import typer
from typer.exceptions import TyperException

from codesdk.cli.app import app
from codesdk.cli.console.files import write_crash_log
from codesdk.errors import ExitCode, Fault

INTERRUPTED = 128 + 2
"""Exit code that shells report for a program that Ctrl-C ended."""
BROKEN_PIPE = 128 + 13


def run() -> NoReturn:
    """Run the command line of this process."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """Run a command of `codesdk`, print any error, and return the exit code."""
    return run_program(app, "codesdk", arguments)


def run_program(program: typer.Typer, name: str, arguments: list[str]) -> int:
    """Run a command of a program, print any error, and return the exit code."""
    as_json = "--json" in arguments
    try:
        code: object = program(arguments, standalone_mode=False, prog_name=name)
        return code if isinstance(code, int) else ExitCode.OK
    except Fault as fault:
        _print_traceback()
        print_fault(fault, as_json=as_json)
        return fault.exit_code
    except TyperException as wrong:
        return _print_usage_error(wrong, as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has gone; flushing the buffer at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as defect:  # noqa: BLE001 (the last place that can turn it into one line)
        _print_traceback()
        return _print_internal_error(defect, as_json=as_json)


def print_fault(fault: Fault, *, as_json: bool) -> None:
    """Print one line on stderr: what happened, then what to do."""
    error: dict[str, object] = {"code": fault.code, "message": fault.message, "advice": fault.advice()}
    if as_json:
        error |= {"retryable": fault.retryable, "details": fault.details}
    _print_error(error, as_json=as_json)


def _print_usage_error(wrong: TyperException, *, as_json: bool) -> int:
    message = wrong.format_message()
    if message:  # empty if there were no arguments: typer has printed the help
        advice = "Run `codesdk --help`, or `codesdk COMMAND --help`."
        _print_error({"code": "USAGE", "message": _sentence(message), "advice": advice}, as_json=as_json)
    return ExitCode.USAGE


def _print_internal_error(defect: Exception, *, as_json: bool) -> int:
    message = f"A defect in CodeSDK: {type(defect).__name__}: {_one_line(str(defect))}"
    advice = f"Its traceback is in {write_crash_log(defect)}. CODESDK_DEBUG=1 shows it here."
    _print_error({"code": "INTERNAL", "message": _sentence(message), "advice": advice}, as_json=as_json)
    return ExitCode.SOFTWARE


def _print_traceback() -> None:
    if os.environ.get("CODESDK_DEBUG"):
        traceback.print_exc()


def _print_error(error: dict[str, object], *, as_json: bool) -> None:
    text = (
        json.dumps({"error": error}, default=str)
        if as_json
        else _one_line(f"error: {error['message']} {error['advice']}")
    )
    print(text, file=sys.stderr)  # noqa: T201 (the one line)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _sentence(text: str) -> str:
    text = _one_line(text)
    return text if text.endswith((".", "!", "?")) else f"{text}."
