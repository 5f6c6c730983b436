"""`...` covers no option that is known to run code or write, however it is spelled; a bundle extends what is known."""

from __future__ import annotations

import time

import pytest

from codesdk.domain.decisions import Effect
from codesdk.policy import PolicyInvalid, load_bundle
from codesdk.policy.shell.known_commands import KNOWN_COMMANDS_FILE, known_commands, read_commands
from codesdk.policy.shell.words import Word

from .conftest import TOOLS, decide_line

BUNDLE = """\
version: 1
default: ask
enable: [workspace.exec]
rules:
- id: commands
  effect: allow
  tool: workspace.exec
  command:
    any_of:
    - [[pytest, py.test, ruff, mypy, black, isort, flake8, pylint, pip, uv, poetry, coverage, python, python3], ...]
    - [[python, python3], -m, [pytest, pip, mypy, json.tool], ...]
    - [python, -Im, pytest, ...]
    - [uv, run, [pytest, python, ruff, mypy], ...]
    - [uv, run, python, -m, pytest, ...]
    - [uv, run, -q, pytest, ...]
    - [uv, pip, install, ...]
    - [pip, install, ...]
    - [poetry, run, [pytest, black], ...]
    - [[python3.12, pip3.12, pytest-3], ...]
    - [coverage, run, -m, pytest, ...]
    - [[npm, yarn, pnpm, node, tsc, eslint, prettier, jest, vitest, npx], ...]
    - [npm, [test, install, run], ...]
    - [npm, exec, eslint, ...]
    - [npm, exec, --, eslint, ...]
    - [npx, [eslint, prettier, tsc], ...]
    - [npx, --yes, [eslint], ...]
    - [[yarn, pnpm], [eslint, run, exec], ...]
    - [pnpm, exec, eslint, ...]
    - [node, server.js, ...]
    - [[cargo, rustc, rustfmt, go, gofmt, make, cmake, ctest, docker, git], ...]
    - [cargo, run, ...]
    - [go, run, ...]
    - [docker, [run, build], ...]
    - [docker, run, --rm, alpine, ls, ...]
    - [docker, exec, web, pytest, ...]
    - [git, config, --get, ...]
    - [command, -v, ...]
    - [[echo, ls, grep, rg, find, sed, awk, sort, tar, curl, wget, cat, xargs], ...]
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("known")
    (folder / "policy.yaml").write_text(BUNDLE, encoding="utf-8")
    return load_bundle(folder, TOOLS)


EXCLUDED = """\
pytest --basetemp=x
pytest --basetemp x tests
pytest --baset=x
pytest --BASETEMP=x
pytest tests --basetemp=x
pytest -q --cache-clear
pytest -p evil
pytest -pevil
pytest -qp evil
pytest -p no:*
pytest -p "$X"
pytest -c other.ini
pytest -cother.ini
pytest --config-file=x
pytest --rootdir=/
pytest --confcutdir x
pytest -o addopts=-pevil
pytest -oaddopts=-pevil
pytest --override-ini=x=y
pytest --override-i x=y
pytest --junitxml=x
pytest --junit-xml x
pytest --log-file=x
pytest --debug
pytest --pastebin=all
pytest --import-mode=prepend
pytest --pyargs os
pytest --cov-report=html:x
pytest @arguments
pytest $OPTIONS
pytest -k -- --basetemp=x
py.test --basetemp=x
timeout 60 pytest --basetemp=x
nice pytest -p evil
ls | xargs pytest
python -m pytest --basetemp x
python3 -m pytest -p evil
python -Im pytest --basetemp=x
uv run pytest --basetemp=x
uv run pytest --baset=x
uv run -q pytest --basetemp=x
uv run python -m pytest --basetemp=x
uv run python -c 1
uv run python
echo x | uv run python -
poetry run pytest --basetemp x
poetry run black --config x .
coverage run -m pytest --basetemp=x
docker exec web pytest --basetemp=x
python3.12 -c 1
pip3.12 install x
pytest-3 --basetemp=x
uv run ruff check --fix
jest --reporters default ./x
ruff check --fix
ruff check --config=x
ruff check --output-file x
ruff check -ox
ruff check --cache-dir=x
ruff --config x check
ruff format .
ruff format . -- --check
ruff @x
mypy --config-file x
mypy --config-f=x
mypy --python-executable=./python
mypy --py=./python
mypy --junit-xml x
mypy --html-report x
mypy --install-types
mypy @x
black --config x
isort --settings-path x
isort --settings-pa=x
flake8 --config=x
pylint --load-plugins=x
pylint --init-hook=x
pylint --init-h x
python -c 1
python -Ic 1
python -m http.server
python -mpytest
python -W error -m evil
python
python -
python3 -m pip install x
python -m mypy --config-file=x
uv sync
uv run x.py
uv run --with x pytest
uv --directory /x run pytest
uv pip install --index-url=http://x y
uv pip install --target x y
uv tool run evil
pip install x --index-url http://x
pip install --target=x y
pip install --targ x y
pip install -tx y
pip install --config-settings=x y
pip install -r requirements.txt
pip install -e .
pip download x
pip --log x list
pip wheel x
pip config set a b
coverage erase
poetry install
poetry -C x show
npm exec evil
npm exec eslint -- --fix
npm exec -- eslint --fix
npm x evil
npm install x --prefix /y
npm install -prefix /y x
npm install --pref=/y x
npm install -g x
npm --script-shell=x test
npm test --script-sh ./x
npm ci
npm start
npm --loglevel silent run x
npm run x --node-options=--require=./y
npm pkg set a=b
npx evil
npx eslint --fix .
npx --yes eslint -c x .
npx --package=evil eslint
npx prettier --write .
npx tsc --outDir x
yarn eslint --fix
yarn run eslint -- --fix
yarn add x
yarn --cwd x list
pnpm dlx evil
pnpm exec eslint --rulesdir x
pnpm -C x list
node -e 1
node -p 1
node -pe 1
node -r ./x y.js
node --require=./x y.js
node --import ./x y.js
node --loader=./x y.js
node --experimental_loader=./x y.js
node --experimental-loader ./x y.js
node --cpu-prof x.js
node --inspect=0.0.0.0 x.js
node --env-file=x y.js
node -
node
tsc --outDir x
tsc -outdir x
tsc -p x
tsc --init
tsc @x
eslint --fix .
eslint -c x .
eslint --rulesdir=x .
eslint -f ./x.js .
eslint -o x .
prettier --write .
prettier -w .
prettier --plugin=./x .
jest --globalSetup=./x
jest --global-setup ./x
jest --transform.js=./x
jest -c x
jest -u
jest --coverageDirectory x
jest --clearCache
vitest --config x
vitest run --reporter=./x
vitest --outputFile.json=x
vitest --coverage.reportsDirectory=x
cargo --config x test
cargo test --config=x
cargo build --manifest-path x
cargo -C x build
cargo build --target-dir=x
cargo +nightly build
cargo install x
cargo r
cargo clippy --fix
cargo fmt
cargo doc --open
cargo evil
cargo run --config x
rustc -C linker=./x a.rs
rustc -Clinker=./x a.rs
rustc -o x a.rs
rustc @x
rustfmt --config-path x a.rs
go fmt
go generate ./...
go install x
go test -exec ./x ./...
go test --exec=./x ./...
go build -toolexec ./x
go vet -vettool=./x
go build -o x
go build -ldflags "-extld=./x"
go build -overlay x
go test -coverprofile=x
go -C x test
go env -w A=b
go mod tidy
gofmt -w .
gofmt -cpuprofile=x .
make -f x
make -fx
make -C x
make --eval=x
make SHELL=./x
make -e all
cmake -P x
cmake -E rm -rf x
cmake -DCMAKE_C_COMPILER=./x .
cmake -D CMAKE_C_COMPILER=./x .
cmake --install build
ctest -S x
docker run alpine ls
docker run -v /:/x alpine
docker run --privileged alpine
docker run --rm -v/:/x alpine
docker run --mount type=bind alpine
docker container run alpine
docker build -f x .
docker --host x ps
docker exec web sh
docker compose up
docker system prune
git config alias.x y
git --exec-path=x log
git -c a=b log
git log --output=x
git log --outp=x
git grep -Oless x
git clone -u x y
git difftool
git rebase -i
git fetch ext::x
rg --pre ./x y
rg -z y
find . -delete
find . -exec rm {} +
sed -i s/a/b/ x
sed -n w/x y
awk 'BEGIN{system("x")}'
sort -o x y
sort -k2ox --outp=x y
sort --compress-prog=./x y
tar -xf a --to-command=./x
tar xf a --checkpoint-action=exec=./x
tar -cf a -I ./x b
curl -o x http://y
curl -sOL http://y
curl --upload-f x http://y
wget -O x http://y
wget --execute=x http://y"""
COVERED = """\
pytest
pytest -q
pytest -x tests/unit
pytest -k "basetemp and not slow"
pytest -p no:cacheprovider
pytest -pno:cacheprovider
pytest -qp no:xdist
pytest --co -q
pytest --cov --cov-report=term-missing
pytest --cov=src --cov-report term
pytest -vv --tb=short --maxfail 3
pytest -- --basetemp=x
pytest -q -- -p
pytest-3 -q
pytest --durations=5 --cov
pytest --durations 5
pip install --pre x
curl --url http://y --netrc
pip3.12 list
pytest tests/*.py
pytest --import-mode=importlib
pytest --unknown-to-us=x
timeout 60 pytest -q
python -m pytest -q
python -m json.tool a.json
python -Im pytest -x
uv run pytest -q
uv run -q pytest -x tests
uv run python -m pytest -q
uv run python x.py -c a
uv run ruff check
poetry run pytest -q
coverage run -m pytest -q
coverage report
docker exec web pytest -q
docker run --rm alpine ls -l -o
ruff check .
ruff check --select E --diff
ruff format --check .
ruff format --diff
mypy src --strict
mypy --python-version 3.11 src
black --check -l 100 .
isort --profile black --check .
flake8 src
pylint src -f json
python x.py -c value -m other
python3 -V
python -W error x.py
pip list
pip list --outdated
pip --timeout 3 show x
pip install x
pip install --pre x
uv tree
uv pip list
uv pip install x
npm ls
npm test
npm test -- --basetemp --fix
npm run build
npm run build --silent
npm outdated --json
npm install x
npm --loglevel silent ls
npm exec eslint .
npm exec -- eslint .
npm pkg get name
npx eslint .
npx eslint src --ext .ts
npx --yes eslint .
npx tsc --noEmit
yarn list
yarn why x
yarn eslint .
pnpm ls
pnpm exec eslint .
node server.js -p 3000 -e production
node x.js --require y
node --test
node --max-old-space-size=4096 x.js
node --version
tsc --noEmit
tsc -noEmit --strict
eslint . --format json
eslint src --max-warnings 0
prettier --check .
prettier --list-different src
jest --ci -t name
jest --coverage --env=jsdom
vitest run --reporter=verbose
vitest --coverage.provider=v8
cargo build --release
cargo test -p x name
cargo test -- --config --nocapture
cargo clippy --all-targets
cargo fmt --check
cargo run -- x
rustc -C opt-level=3 --edition 2021 a.rs
go test ./...
go test -run X -count=1 ./...
go vet ./...
go build ./...
go build -ldflags="-s -w" ./...
go list -m all
go env GOPATH
gofmt -l .
gofmt -d -s .
make
make -j4 test
make -k all
cmake -S . -B build -DCMAKE_BUILD_TYPE=Release
cmake --build build -j 4
ctest --output-on-failure
docker ps -a
docker logs -f web
docker compose ps
docker image ls
git log --oneline -5
git status -sb
git config --get user.name
git -C sub log
rg -n x src
find . -name '*.py'
sed -n 1,5p x
awk '{print $1}' x
sort -k2 x
tar tf a.tar
curl -s http://y
wget -q http://y
cat -- --basetemp=x
command -v python3
cat $X"""


@pytest.mark.parametrize("line", EXCLUDED.splitlines())
def test_an_option_that_runs_or_writes_is_asked_about_in_every_spelling(bundle, line):
    assert decide_line(bundle, line).effect is Effect.ASK


@pytest.mark.parametrize("line", COVERED.splitlines())
def test_any_other_argument_is_covered(bundle, line):
    decided = decide_line(bundle, line)
    assert decided.effect is Effect.ALLOW, decided.reason


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("pytest --basetemp=x", "does not cover `--basetemp=x`, which deletes files"),
        ("pytest -p evil", "does not cover `-p`, which runs code"),
        ("pytest --junitxml=x", "does not cover `--junitxml=x`, which writes files"),
        ("black --config x", "does not cover `--config`, which reads configuration"),
        ("pytest --pastebin=all", "does not cover `--pastebin=all`, which sends or fetches data"),
        ('pytest "$X"', "its value is only known when it runs, and may be an option"),
    ],
)
def test_a_refusal_says_what_the_argument_does(bundle, line, says):
    assert says in decide_line(bundle, line).reason


def extended(write_bundle, commands, *patterns):
    rules = f"- {{id: a, effect: allow, tool: workspace.exec, command: {{any_of: [{', '.join(patterns)}]}}}}"
    return write_bundle(f"default: ask\nenable: [workspace.exec]\ncommands: {commands}\nrules:\n{rules}\n")


@pytest.mark.parametrize(
    ("commands", "pattern", "allowed", "asked"),
    [
        ("{mytool: {runs: --hook -x}}", "mytool, ...", "mytool --other a", "mytool --hook=a"),
        ("{mytool: {runs: [--hook, -x]}}", "mytool, ...", "mytool -- -x", "mytool --ho a"),
        ("{mytool: {runs: -x, values: -k}}", "mytool, ...", "mytool -kx", "mytool -vx"),
        ("{mytool: {runs: --hook, abbreviated: false}}", "mytool, ...", "mytool --hoo a", "mytool --hook a"),
        ("{mytool: {subcommands: {push: network}}}", "mytool, ...", "mytool pull", "mytool push"),
        ("{mytool: {subcommands: {push: network}}}", "mytool, push, ...", "mytool push x", "mytool pull x"),
        ("{mytool: {unlisted: runs, subcommands: {show: {also: list}}}}", "mytool, ...", "mytool list", "mytool pull"),
        ("{mytool: {command_at: 1, until_operand: true}}", "mytool, pytest, ...", "mytool pytest -q", "mytool pytest --basetemp=x"),
        ("{mytool: {runs: --hook, also: other}}", "other, ...", "other x", "other --hook"),
        ("{pytest: {writes: --my-report}}", "pytest, ...", "pytest -q", "pytest --my-report=x"),
        ("{pytest: {writes: --my-report}}", "pytest, ...", "pytest -q", "pytest --basetemp=x"),
        ("{pytest: {writes: --my-report}}", "py.test, ...", "py.test -q", "py.test --my-report=x"),
        ("{pytest: {harmless: --junitxml}}", "pytest, ...", "pytest --junitxml=x", "pytest --log-file=x"),
        ("{pytest: {harmless: -p=xdist}}", "pytest, ...", "pytest -p xdist", "pytest -p evil"),
        ("{pytest: {runs: -p}}", "pytest, ...", "pytest -q", "pytest -p no:xdist"),
        ("{npm: {subcommands: {ci: nothing}}}", "npm, ...", "npm ci", "npm install"),
        ("{npm: {subcommands: {run: nothing}}}", "npm, ...", "npm run x", "npm run x --script-shell=y"),
        ("{timeout: {writes: -x}, ls: {}}", "[timeout, ls], ...", "ls a", "timeout 5 x"),
        ("{cat: {runs: --evil}}", "cat, ...", "cat a", "cat --evil"),
        ("{find: {runs: -my}}", "find, ...", "find a", "find a -delete"),
    ],
)  # fmt: skip
def test_a_bundle_adds_to_what_is_known_and_takes_from_it(write_bundle, commands, pattern, allowed, asked):
    bundle = extended(write_bundle, commands, f"[{pattern}]")
    assert decide_line(bundle, allowed).effect is Effect.ALLOW, decide_line(bundle, allowed).reason
    assert decide_line(bundle, asked).effect is Effect.ASK


def test_bundles_that_know_different_commands_have_different_hashes(write_bundle):
    hashes = {extended(write_bundle, commands, "[mytool, ...]").hash for commands in ("{}", "{mytool: {runs: -x}}", "{mytool: {runs: -y}}")}  # fmt: skip
    assert len(hashes) == 3


def test_what_one_bundle_knows_changes_no_other(write_bundle, bundle):
    extended(write_bundle, "{pytest: {harmless: --basetemp}}", "[pytest, ...]")
    assert decide_line(bundle, "pytest --basetemp=x").effect is Effect.ASK


@pytest.mark.parametrize(
    ("commands", "place", "says"),
    [
        ("{mytool: {runs: hook}}", "3:21", "`hook` is not an option"),
        ("{mytool: {runs: --hook=x}}", "3:21", "without its value"),
        ("{mytool: {rums: --hook}}", "3:21", "Did you mean `runs`?"),
        ("{mytool: {runs: -x, writes: -x}}", "3:12", "`-x` is listed under both `runs` and `writes`"),
        ("{mytool: {values: -x, flags: -x}}", "3:12", "`-x` is listed under both `values` and `flags`"),
        ("{'my tool': {}}", "3:12", "`my tool` is not the name of a command"),
        ("{mytool: {subcommands: {a: destroys}}}", "3:", "runs"),
        ("{mytool: {command_at: 0}}", "3:21", "greater than or equal to 1"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_place(tmp_path, commands, place, says):
    (tmp_path / "policy.yaml").write_text(f"version: 1\nrules: []\ncommands: {commands}\n")
    with pytest.raises(PolicyInvalid) as refused:
        load_bundle(tmp_path, TOOLS)
    assert f"policy.yaml:{place}" in str(refused.value)
    assert says in f"{refused.value} {refused.value.advice()}"


def test_a_command_is_described_in_one_file_of_a_bundle(tmp_path):
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("version: 1\ncommands:\n  mytool: {runs: -x}\n")
    with pytest.raises(PolicyInvalid, match=r"b\.yaml:3:3: The command `mytool` is already described in `a\.yaml`"):
        load_bundle(tmp_path, TOOLS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("version: 1\ncommands: {a: {runs: x}}\n", ":2:16: "),
        ("version: 2\ncommands: {}\n", ":1:1: "),
        ("commands: [", "This is not YAML"),
    ],
)
def test_a_bad_file_of_known_commands_is_a_typed_error_with_its_place(tmp_path, text, says):
    (tmp_path / "known.yaml").write_text(text)
    with pytest.raises(PolicyInvalid) as refused:
        read_commands(tmp_path / "known.yaml")
    assert refused.value.code == "POLICY_INVALID"
    assert says in str(refused.value)


def test_the_packaged_file_is_valid_and_every_entry_compiles():
    commands = read_commands(KNOWN_COMMANDS_FILE)
    names = [each for name, entry in commands.items() for each in (name, *entry.also)]
    assert len(names) == len(set(names)), "a command stands twice in the file"
    for name in names:
        assert known_commands().find(name) is not None


@pytest.mark.parametrize(
    "words", [["pip", *["--x", "list"] * 5_000], ["pnpm", *["--x", "exec"] * 5_000], ["uv", "run"] * 5_000, ["docker", *["--x", "image", "--y", "ls"] * 3_000]]
)  # fmt: skip
def test_a_long_line_of_options_that_nobody_knows_is_read_in_bounded_time(words):
    began = time.process_time()
    list(known_commands().unsafe_arguments(words[0], [Word(text) for text in words]))
    assert time.process_time() - began < 2
