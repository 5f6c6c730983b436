"""The table of `command_effects`: one row for each command or subcommand, and one for each option that adds an effect.

Effects are named as in `CommandEffect`. Of the rows of a command, those with the longest matching subcommand count.
Only commands whose effect is plain from the command line are listed; all others have an unknown effect.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Row(NamedTuple):
    """What a command does with one of these options, or with any if none is named."""

    subcommand: tuple[str, ...]
    options: frozenset[str]
    effects: tuple[str, ...]


_READS = """
arch basename base32 base64 bat cal cat cksum cmp column comm cut date df diff dirname du echo env expand expr factor false
file fmt fold free getconf getent grep egrep fgrep groups head hexdump id jq less locale ls lsblk lscpu md5sum nl
nproc numfmt od paste pr printenv printf ps pwd readlink realpath rev rg sdiff seq sha1sum sha224sum sha256sum sha384sum
sha512sum shuf sleep sort stat strings sum tac tail test [ [[ : tr tree true tsort tty type uname unexpand uniq uptime users
vmstat wc which who whoami xxd yes cd pushd popd set umask sed awk gawk mawk find fd command exit return unset
shift wait dmesg lsof ss netstat pgrep top zcat zgrep yq
"""
_TABLE = """
rm                              deletes
rmdir                           deletes
unlink                          deletes
shred                           overwrites
shred : -u --remove             deletes
truncate                        overwrites
mv                              overwrites
mv : -n --no-clobber            writes
cp                              overwrites
install                         overwrites
ln                              writes
ln : -f --force                 overwrites
tee                             overwrites
tee : -a --append               writes
dd                              overwrites
patch                           overwrites
touch                           writes
mkdir                           writes
mkfifo                          writes
mktemp                          writes
split                           writes
csplit                          writes
chmod                           permissions
chown                           permissions
chgrp                           permissions
setfacl                         permissions
chattr                          permissions
kill                            processes
pkill                           processes
killall                         processes
sed : -i --in-place             overwrites
sort : -o --output              overwrites
yq : -i --inplace               overwrites
find : -delete                  deletes
find : -fprint -fprint0 -fprintf -fls  overwrites
tar : -t --list                 reads
tar : -x --extract --get        overwrites
tar : -c --create               writes
tar : -r -u --append --update   overwrites
tar : --remove-files            deletes
zip                             writes
unzip                           overwrites
unzip : -l                      reads
gzip                            overwrites
gunzip                          overwrites
bzip2                           overwrites
xz                              overwrites
zstd                            writes
curl                            network
curl : -o -O --output --remote-name --remote-name-all --output-dir -J --remote-header-name  writes
curl : -X --request               publishes
curl : -T --upload-file -d --data --data-raw --data-binary --data-urlencode -F --form --json  publishes
wget                            network writes
wget : --post-file --post-data --body-file --body-data  publishes
ping                            network
dig                             network
nslookup                        network
host                            network
traceroute                      network
nc                              network unknown
ncat                            network unknown
telnet                          network
ssh                             network unknown
scp                             network overwrites
sftp                            network overwrites
rsync                           overwrites
rsync : --delete --delete-after --delete-before --delete-during --delete-excluded --remove-source-files  deletes
rsync : -e --rsh                network
ftp                             network
git status                      reads
git log                         reads
git diff                        reads
git show                        reads
git blame                       reads
git grep                        reads
git describe                    reads
git rev-parse                   reads
git rev-list                    reads
git ls-files                    reads
git ls-tree                     reads
git cat-file                    reads
git shortlog                    reads
git name-rev                    reads
git merge-base                  reads
git for-each-ref                reads
git remote                      reads
git remote show                 network
git remote add                  writes
git remote set-url              writes
git remote remove               writes
git remote rename               writes
git branch                      writes
git branch : --list -a -r -v --show-current --contains --merged  reads
git branch : -d -D --delete     rewrites-history
git branch : -f --force -M      rewrites-history
git tag                         writes
git tag : -l --list             reads
git tag : -d --delete -f --force  rewrites-history
git add                         writes
git commit                      writes
git commit : --amend            rewrites-history
git stash                       overwrites
git stash list                  reads
git stash show                  reads
git stash drop                  deletes
git stash clear                 deletes
git merge                       overwrites
git cherry-pick                 overwrites
git revert                      overwrites
git apply                       overwrites
git am                          overwrites
git rebase                      overwrites rewrites-history
git reset                       writes
git reset : --hard --merge --keep  overwrites rewrites-history
git restore                     overwrites
git checkout                    overwrites
git switch                      overwrites
git clean                       deletes
git clean : -n --dry-run        reads
git rm                          deletes
git mv                          writes
git filter-repo                 rewrites-history overwrites
git filter-branch               rewrites-history overwrites unknown
git reflog                      reads
git reflog expire               rewrites-history
git reflog delete               rewrites-history
git gc                          rewrites-history
git update-ref                  rewrites-history
git init                        writes
git worktree                    writes
git worktree list               reads
git worktree remove             deletes
git clone                       network writes
git fetch                       network writes
git pull                        network overwrites
git ls-remote                   network
git push                        publishes
git push : -f --force --force-with-lease --force-if-includes --mirror --prune -d --delete + :  rewrites-history
git submodule                   reads
git submodule update            network overwrites
git submodule add               network writes
git format-patch                writes
git archive                     writes
git bundle                      writes
npm                             unknown
npm install                     installs network runs-code
npm i                           installs network runs-code
npm ci                          installs network runs-code deletes
npm add                         installs network runs-code
npm update                      installs network runs-code
npm uninstall                   deletes
npm run                         runs-code
npm run-script                  runs-code
npm test                        runs-code
npm t                           runs-code
npm start                       runs-code
npm publish                     publishes runs-code
npm unpublish                   publishes deletes
npm ls                          reads
npm list                        reads
npm outdated                    network
npm audit                       network
npm audit fix                   installs network
npm view                        network
npm pack                        writes runs-code
npm version                     writes runs-code
yarn                            installs network runs-code
yarn add                        installs network runs-code
yarn install                    installs network runs-code
yarn run                        runs-code
yarn test                       runs-code
yarn build                      runs-code
yarn publish                    publishes runs-code
pnpm                            unknown
pnpm install                    installs network runs-code
pnpm i                          installs network runs-code
pnpm add                        installs network runs-code
pnpm run                        runs-code
pnpm test                       runs-code
pnpm publish                    publishes runs-code
pip                             unknown
pip install                     installs network runs-code
pip uninstall                   deletes
pip download                    network writes runs-code
pip list                        reads
pip show                        reads
pip freeze                      reads
pip check                       reads
uv                              unknown
uv pip install                  installs network
uv pip                          unknown
uv sync                         installs network
uv add                          installs network
uv lock                         network writes
uv publish                      publishes
poetry install                  installs network
poetry add                      installs network
poetry publish                  publishes
pipx install                    installs network
twine upload                    publishes
apt                             unknown
apt install                     installs network
apt update                      network
apt upgrade                     installs network
apt remove                      deletes
apt purge                       deletes
apt list                        reads
apt show                        reads
apt-get install                 installs network
apt-get update                  network
apt-get upgrade                 installs network
apt-get remove                  deletes
apt-get purge                   deletes
apk add                         installs network
apk del                         deletes
dnf install                     installs network
yum install                     installs network
brew install                    installs network
gem install                     installs network
gem push                        publishes
bundle install                  installs network
go build                        runs-code writes
go test                         runs-code
go run                          runs-code
go vet                          reads
go list                         reads
go env                          reads
go version                      reads
go get                          installs network
go install                      installs network
go mod                          network writes
go generate                     runs-code
go clean                        deletes
cargo build                     runs-code writes
cargo check                     runs-code
cargo clippy                    runs-code
cargo test                      runs-code
cargo run                       runs-code
cargo bench                     runs-code
cargo fmt                       overwrites
cargo add                       network writes
cargo update                    network writes
cargo fetch                     network
cargo install                   installs network runs-code
cargo clean                     deletes
cargo publish                   publishes runs-code
make                            runs-code
gmake                           runs-code
cmake                           runs-code writes
ninja                           runs-code
meson                           runs-code
mvn                             runs-code
mvn deploy                      publishes runs-code
gradle                          runs-code
gradle publish                  publishes runs-code
tox                             runs-code
nox                             runs-code
pytest                          runs-code
jest                            runs-code
vitest                          runs-code
mocha                           runs-code
rake                            runs-code
rspec                           runs-code
mypy                            reads
pyright                         reads
flake8                          reads
ruff check                      reads
ruff check : --fix              overwrites
ruff format                     overwrites
ruff format : --check --diff    reads
black                           overwrites
black : --check --diff          reads
isort                           overwrites
isort : --check-only --check --diff -c  reads
prettier                        reads
prettier : --write -w           overwrites
eslint                          runs-code
eslint : --fix                  overwrites
tsc                             writes
tsc : --noEmit                  reads
gcc                             writes
g++                             writes
clang                           writes
cc                              writes
docker                          unknown
docker ps                       reads
docker images                   reads
docker logs                     reads
docker inspect                  reads
docker pull                     network writes
docker push                     publishes
docker build                    runs-code network
docker run                      unknown network
docker rm                       deletes
docker rmi                      deletes
docker system                   unknown
docker system prune             deletes
docker volume                   unknown
docker volume rm                deletes
docker login                    network
kubectl                         unknown
kubectl get                     network
kubectl describe                network
kubectl logs                    network
kubectl apply                   changes-remote
kubectl create                  changes-remote
kubectl delete                  changes-remote
kubectl rollout                 changes-remote
terraform plan                  network runs-code
terraform apply                 changes-remote
terraform destroy               changes-remote
helm install                    changes-remote
helm upgrade                    changes-remote
gh                              unknown
gh pr                           network
gh pr create                    publishes
gh pr merge                     changes-remote
gh pr close                     changes-remote
gh pr comment                   publishes
gh issue                        network
gh issue create                 publishes
gh issue comment                publishes
gh release                      network
gh release create               publishes
gh release delete               changes-remote
gh repo delete                  changes-remote
gh api                          network unknown
"""

VALUED_OPTIONS: dict[str, frozenset[str]] = {
    "git": frozenset(
        ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "-m", "--message", "-o", "--push-option", "-F", "--repo"]
    ),
    "docker": frozenset(["-H", "--host", "-c", "--context", "--config", "-l", "--log-level"]),
    "kubectl": frozenset(["-n", "--namespace", "--context", "--kubeconfig", "-f", "-l"]),
    "npm": frozenset(["--prefix", "-w", "--workspace", "--loglevel"]),
    "pnpm": frozenset(["-C", "--dir", "--filter"]),
    "yarn": frozenset(("--cwd",)),
    "cargo": frozenset(["--manifest-path", "--config", "-C", "-Z"]),
    "go": frozenset(("-C",)),
    "sed": frozenset(["-e", "-f", "--expression", "--file"]),
    "sort": frozenset(["-k", "-t", "-S", "-T"]),
    "tar": frozenset(["-f", "-C", "--file", "--directory", "-b", "-T", "-X"]),
    "curl": frozenset(["-H", "--header", "-u", "-A", "-b", "-e", "-m", "--max-time", "-w", "-o", "-K"]),
    "gh": frozenset(["-R", "--repo"]),
    "rsync": frozenset(["-e", "--rsh", "--exclude", "--include"]),
}  # fmt: skip
"""Options whose value is the next word or the rest of their cluster: no subcommand, and no option either."""


def _rows() -> dict[str, tuple[Row, ...]]:
    found: dict[str, list[Row]] = {name: [Row((), frozenset(), ("reads",))] for name in _READS.split()}
    for line in _TABLE.strip().splitlines():
        left, effects = re.split(r" {2,}", line, maxsplit=1)
        command, _, options = left.partition(" : ")
        name, *subcommand = command.split()
        row = Row(tuple(subcommand), frozenset(options.split()), tuple(effects.split()))
        found.setdefault(name, []).append(row)
    return {name: tuple(rows) for name, rows in found.items()}


ROWS: dict[str, tuple[Row, ...]] = _rows()
"""The rows by command."""
