"""Why does nothing come? The broker's state as a picture, and causes found in it, in words.

`painting` looks at running brokers, `picture` is what it sees, `causes` a table of functions of
pictures, `answers` asks them all and ranks what they say.
"""
