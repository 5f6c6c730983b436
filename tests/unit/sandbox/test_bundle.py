from __future__ import annotations

import ast
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from codesdk.sandbox.packaging import bundle

RUNNER = Path(str(files("codesdk.sandbox.runner")))
SOURCES = {str(path.relative_to(RUNNER)): path.read_text("utf-8") for path in RUNNER.rglob("*.py")}

LIBRARY = sys.stdlib_module_names | {"_sha2"}  # which is there from Python 3.12 on


def test_every_module_of_the_runner_is_in_the_bundle():
    modules = {path for path in SOURCES if not path.endswith("__init__.py")}
    assert {f"{name.replace('.', '/')}.py" for name in bundle.MODULES} == modules


@pytest.mark.parametrize("name", SOURCES)
def test_the_runner_is_python_3_9(name):
    ast.parse(SOURCES[name], feature_version=(3, 9))


@pytest.mark.parametrize("name", SOURCES)
def test_the_runner_imports_only_itself_and_the_standard_library(name):
    for node in ast.walk(ast.parse(SOURCES[name])):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        for found in names:
            assert found.startswith("codesdk.sandbox.runner") or found.partition(".")[0] in LIBRARY


def test_the_bundle_starts_without_site_and_without_the_package_on_the_path(tmp_path):
    program = bundle.program().replace("main(sys.argv[1])", "print(main.__module__)")
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, "{}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert ran.stdout == "codesdk.sandbox.runner.boot\n"
