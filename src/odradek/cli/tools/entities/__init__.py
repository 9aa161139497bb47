"""`odradek configs` for users, clients and addresses: how it shows and changes them."""
