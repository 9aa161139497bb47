"""The things that a working copy needs around the package: set-up, peers to compare with, generated
pages."""
