"""The command `odradek`: one module a subcommand, and the table that lists them."""
