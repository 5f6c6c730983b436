"""The runner: our program inside each sandbox. Standard library only, Python 3.9 or later.

Imports nothing outside this package. `codesdk.sandbox.packaging.bundle` packs it into the container's argv, so no part of
it is in the image. `protocol` is shared with the worker's side.

Reading order: main (loop and connection), execution (execs: requests, lifecycle, subreaper, process_tree, spool, probe),
workspace (root and files first, then archives, snapshots, watches, quota), egress, kernel (system calls).
"""
