"""Code that tests of users and of this project share. Nothing imports it but pytest."""
