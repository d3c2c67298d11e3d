"""The machine's access to the object store: signed requests, credentials, pins and seals."""
