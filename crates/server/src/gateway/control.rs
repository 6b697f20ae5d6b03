//! What a person may ask of a gateway that runs.
