"""Code that tests of users and of this project share. Only pytest imports it."""
