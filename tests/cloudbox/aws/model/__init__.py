"""Checks what clients send to the AWS box against AWS's own descriptions of its APIs.

`sent` rebuilds a request from the wire, `check` compares it with botocore's model, `reader` reads the constraints that
stand only in the model's documentation, `decided` is the table of those that it can't read, `policies` and `groups` are
grammars that the model doesn't have, and `refusing` answers as the service would. No clouds and no state in here.
"""
