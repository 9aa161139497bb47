"""What `odradek configs` shows and changes of users, clients and addresses."""
