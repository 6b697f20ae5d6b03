//! Who may ask at all: the names by which we are reached, and the token.
