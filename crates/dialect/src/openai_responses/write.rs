//! To the wire: the frames and bodies that a provider would send.
