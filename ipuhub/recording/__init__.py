"""io: records one watch of the Kubernetes API in PostgreSQL exactly once.

`Recording` reads a full list, then watches from its version, and writes batches of changes. Each
batch is one transaction that also moves the watch's checkpoint. So a restart continues where the
last commit ended: nothing is lost, nothing is counted twice. A `Recorder` defines the rows.
"""
