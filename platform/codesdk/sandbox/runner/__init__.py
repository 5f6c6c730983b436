"""The runner: our program inside each sandbox. Standard library only, Python 3.9 or later.

It imports nothing outside this package. `codesdk.sandbox.packaging.bundle` packs it into the container's argv, so the
image contains no part of it. The worker's side uses `protocol` too.

Reading order: main (loop and connection), execution (execs: requests, lifecycle, subreaper, process_tree, spool,
probe), workspace (root and files first, then archives, snapshots, watches, quota), egress, kernel (system calls).
"""
