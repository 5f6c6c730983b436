#!/bin/sh
# Run in a sandbox of the image, as the tool user: prints one line for each thing that must be there, fails otherwise.
set -eu
node --version
npm --version
cd "$(mktemp -d)"
printf '{"name": "smoke", "version": "1.0.0", "scripts": {"test": "node --test"}}' > package.json
printf 'require("node:test")("adds", () => require("node:assert").equal(1 + 1, 2));\n' > smoke.test.js
npm test --silent > out.txt 2>&1 || { cat out.txt; exit 1; }
grep -q '^# pass 1' out.txt && echo "npm runs a test"
node -e 'require("node:worker_threads"); console.log("threads", new Intl.NumberFormat("en").format(1234))'
python3 -c 'print("python is there")'
git --version
test -z "$(find / -xdev -perm /6000 -type f 2>/dev/null)" && echo "no setuid or setgid files"
