"""`odradek wheel`: a timing wheel at work, drawn in a terminal or as SVG."""
