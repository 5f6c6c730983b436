#!/bin/sh
# Run in a sandbox of the image, as the tool user: prints one line for each thing that must be there, fails otherwise.
set -eu
python3 -c 'import sys, ctypes, tarfile; assert sys.version_info >= (3, 11); print("python", sys.version.split()[0])'
python -c 'print("python is python3")'
git --version
rg --version | head -n 1
patch --version | head -n 1
cd "$(mktemp -d)"
printf 'def test_arithmetic():\n    assert 1 + 1 == 2\n' > test_smoke.py
python3 -m pytest -q -p no:cacheprovider test_smoke.py
git init --quiet repository
git -C repository -c user.name=t -c user.email=t@example.invalid commit --quiet --allow-empty --message smoke
test -z "$(find / -xdev -perm /6000 -type f 2>/dev/null)" && echo "no setuid or setgid files"
