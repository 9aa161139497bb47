"""The protection of a broker's listeners, made from its settings. Imported only where one asks for
it."""
