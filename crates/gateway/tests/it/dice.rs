//! Pseudorandom choices that are the same in every run.

/// A small generator of numbers.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below the limit.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % limit
    }

    /// Splits the bytes into pieces of any length up to the maximum.
    pub(super) fn pieces(&mut self, bytes: &[u8], most: usize) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = (1 + self.below(most)).min(rest.len());
            let (piece, behind) = rest.split_at(length);
            pieces.push(piece.to_vec());
            rest = behind;
        }
        pieces
    }

    /// Encodes a body in chunks of any length up to the maximum.
    pub(super) fn chunked(&mut self, body: &[u8], most: usize) -> Vec<u8> {
        let mut chunked = Vec::new();
        for piece in self.pieces(body, most) {
            chunked.extend_from_slice(format!("{:X}\r\n", piece.len()).as_bytes());
            chunked.extend_from_slice(&piece);
            chunked.extend_from_slice(b"\r\n");
        }
        chunked.extend_from_slice(b"0\r\n\r\n");
        chunked
    }
}
