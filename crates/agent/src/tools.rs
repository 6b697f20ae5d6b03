//! What a model may do to the world.
