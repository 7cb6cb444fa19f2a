"""How each file of chapters/take_along is called, and what the library answers."""
