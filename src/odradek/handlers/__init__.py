"""One module per API key, and the table that routes a request and answers ApiVersions.

A handler decodes, asks the floors below, and encodes; it decides nothing that is not about the
wire. It never blocks: work that takes time ends in a callback, which answers.
"""
