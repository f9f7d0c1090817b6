"""What every process of IPUHub has in common."""
