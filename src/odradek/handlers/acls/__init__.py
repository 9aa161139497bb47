"""The APIs that tell of ACLs and change them."""
