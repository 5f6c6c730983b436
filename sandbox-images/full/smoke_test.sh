#!/bin/sh
# Run in a sandbox of the image, as the tool user: prints one line for each thing that must be there, fails otherwise.
set -eu
cd "$(mktemp -d)"
printf '#include <stdio.h>\nint main(void) { puts("c works"); return 0; }\n' > c.c
printf '#include <iostream>\nint main() { std::cout << "c++ works" << std::endl; }\n' > cpp.cc
printf 'all: c\nc: c.c\n\tgcc -Wall -Werror -o c c.c\n' > Makefile
make --silent && ./c
g++ -o cpp cpp.cc && ./cpp
printf 'cmake_minimum_required(VERSION 3.18)\nproject(smoke C)\nadd_executable(built c.c)\n' > CMakeLists.txt
cmake -G Ninja -B build . > cmake.txt 2>&1 || { cat cmake.txt; exit 1; }
ninja -C build > ninja.txt && ./build/built > /dev/null && echo "cmake and ninja work"
python3 -m venv --without-pip venv && venv/bin/python -c 'print("venv works")'
python3 -m pip --version | cut -d ' ' -f 1,2
printf 'def test_arithmetic():\n    assert 1 + 1 == 2\n' > test_smoke.py
python3 -m pytest -q -p no:cacheprovider -n 2 --timeout 20 --cov . test_smoke.py | tail -n 1
printf '@test "adds" { [ $((1 + 1)) -eq 2 ]; }\n' > smoke.bats
bats smoke.bats
printf '#!/bin/sh\necho "$1"\n' > s.sh && shellcheck s.sh && echo "shellcheck works"
echo '{"a": 1}' | jq .a
sqlite3 :memory: 'select 1;'
pkg-config --version
git --version
test -z "$(find / -xdev -perm /6000 -type f 2>/dev/null)" && echo "no setuid or setgid files"
