"""The common parts of every IPUHub process."""
