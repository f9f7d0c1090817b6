"""io: the V-IPU user API as protocol buffers; the *_pb2 modules are made by `generate`."""
