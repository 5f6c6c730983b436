"""The pipeline: what happens to a tool call, from the request to the answer.

Read in this order: `pipeline` (decide and hand over), `claim` (the worker takes it), `execution` (it runs),
`ending` (what is recorded), `results` (the caller gets it).
"""
