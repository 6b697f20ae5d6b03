//! Compressed bodies, and a decompression bomb.

use bytes::Bytes;
use flate2::write::{DeflateEncoder, GzEncoder};
use flate2::{Compression, Crc};
use std::io::Write;

const BLOCK_BYTES: usize = 1 << 20;
const BLOCK_COUNT: usize = 4096;

/// Compresses the pieces one by one: each can be decompressed when it has arrived.
pub(crate) fn gzip(pieces: &[Bytes]) -> Vec<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let mut compressed: Vec<Bytes> = Vec::new();
    for piece in pieces {
        // Writing to memory does not fail.
        let written = encoder.write_all(piece).and_then(|()| encoder.flush());
        written.ok();
        compressed.push(Bytes::from(std::mem::take(encoder.get_mut())));
    }
    compressed.push(Bytes::from(encoder.finish().unwrap_or_default()));
    compressed
}

/// Returns a well-formed body of a few MiB that decompresses to one frame of 4 GiB.
///
/// The same compressed MiB is repeated: a block that ends on a byte boundary does not depend on its position.
pub(crate) fn gzip_bomb(opening: &[u8]) -> Vec<Bytes> {
    const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    /// An empty last block.
    const END: [u8; 2] = [3, 0];
    let block = vec![b'x'; BLOCK_BYTES];
    let (mut sum, mut block_sum) = (Crc::new(), Crc::new());
    sum.update(opening);
    block_sum.update(&block);
    let repeated = deflate_block(&block);
    let mut pieces = vec![Bytes::from_static(&HEADER), deflate_block(opening)];
    for _ in 0..BLOCK_COUNT {
        pieces.push(repeated.clone());
        sum.combine(&block_sum);
    }
    let mut end = END.to_vec();
    end.extend(sum.sum().to_le_bytes());
    end.extend(sum.amount().to_le_bytes());
    pieces.push(Bytes::from(end));
    pieces
}

/// Returns compressed data without an end, up to a byte boundary.
fn deflate_block(data: &[u8]) -> Bytes {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(data).and_then(|()| encoder.flush());
    written.ok();
    Bytes::from(std::mem::take(encoder.get_mut()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn gzip_output_decompresses_to_input() {
        let pieces = [Bytes::from("data: one\n\n"), Bytes::from("data: two\n\n")];
        let compressed = gzip(&pieces).concat();
        let mut text = String::new();
        let mut decoder = flate2::read::GzDecoder::new(compressed.as_slice());
        decoder.read_to_string(&mut text).unwrap();
        assert_eq!(text, "data: one\n\ndata: two\n\n");
    }

    #[test]
    fn gzip_bomb_is_small_and_expands_without_line_end() {
        let body = gzip_bomb(b"data: ");
        let size: usize = body.iter().map(Bytes::len).sum();
        assert!(size < 8 << 20, "{size}");
        let body = body.concat();
        let mut decoder = flate2::read::GzDecoder::new(body.as_slice());
        let mut start = vec![0; 20 << 20];
        decoder.read_exact(&mut start).unwrap();
        assert!(start.starts_with(b"data: xxx") && start.ends_with(b"xxx"));
    }
}
