"""io: one watch of the Kubernetes API, recorded in Postgres exactly once.

`Recording` reads a full list, then watches from its version, and writes batches of changes. Each
batch is one transaction that also moves the watch's checkpoint, so that a restart goes on where
the last commit ended: nothing is lost, nothing counts twice. What a row is, is a `Recorder`'s.
"""
