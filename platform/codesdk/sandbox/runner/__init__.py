"""The runner: the one program of ours that runs inside a sandbox. Standard library only, Python 3.9 and later.

Its modules import nothing outside this folder. `codesdk.sandbox.packaging.bundle` joins them into one program that is passed to
the container in its argv, so nothing of it lies in the image. `wire` and `channel` are shared with the worker's side.

Reading order: main (the loop), execs (one exec's life), subreaper (how a tree starts), tree (how it ends), spool (its
output), beneath and files (the workspace), archive (tar), probe (what a tool process may do), relay, peers and channel (egress),
kernel (system calls).
"""
