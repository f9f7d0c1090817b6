"""io: the gRPC services of vipu-server."""
