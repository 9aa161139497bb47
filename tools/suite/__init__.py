"""The runs of `./test`: its steps, the parts of `--all`, and the rules that hold for every test."""
