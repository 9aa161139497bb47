"""The broker's settings, one module per subject; `odradek.config.broker` joins them."""
