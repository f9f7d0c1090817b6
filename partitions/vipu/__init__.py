"""glue: V-IPU: the gRPC user API, a client for it and a controller that serves it."""
