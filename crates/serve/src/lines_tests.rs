use super::*;
use proptest::prelude::*;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncWriteExt, ReadBuf};

/// Yields the bytes in pieces of these lengths, cyclically.
struct Pieces<'a> {
    bytes: &'a [u8],
    lengths: std::iter::Cycle<std::slice::Iter<'a, usize>>,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wanted = self.lengths.next().copied().unwrap_or(usize::MAX);
        let count = wanted.min(self.bytes.len()).min(buffer.remaining());
        let (piece, rest) = self.bytes.split_at(count);
        buffer.put_slice(piece);
        self.bytes = rest;
        Poll::Ready(Ok(()))
    }
}

fn read(bytes: &[u8], lengths: &[usize], longest: usize) -> Vec<Line> {
    let lengths = lengths.iter().cycle();
    let mut reader = LineReader::new(Pieces { bytes, lengths }, longest);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut lines = Vec::new();
        while let Some(line) = reader.next().await.unwrap() {
            lines.push(line);
        }
        lines
    })
}

fn whole(text: &str) -> Line {
    Line::Complete(text.to_owned())
}

/// The expected lines, computed from the whole input at once.
fn expected(bytes: &[u8], longest: usize) -> Vec<Line> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| {
            let content = line.strip_suffix(b"\r").unwrap_or(line);
            if content.is_empty() {
                return None;
            }
            if content.len() > longest {
                let bytes = line.len() as u64;
                return Some(Line::TooLong { bytes });
            }
            Some(std::str::from_utf8(content).map_or(Line::InvalidUtf8, whole))
        })
        .collect()
}

/// Byte strings in which the bytes that matter to lines are frequent.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => Just(b"\n".to_vec()),
        2 => Just(b"\r".to_vec()),
        1 => Just("\u{2028}".as_bytes().to_vec()),
        1 => Just(b"\0".to_vec()),
        4 => any::<u8>().prop_map(|byte| vec![byte]),
        4 => "[a-z{}]{1,9}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(byte, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn lines_do_not_depend_on_read_sizes(
        bytes in bytes(),
        lengths in proptest::collection::vec(1_usize..9, 1..9),
        longest in 0_usize..20,
    ) {
        prop_assert_eq!(read(&bytes, &lengths, longest), expected(&bytes, longest));
    }
}

#[test]
fn a_line_ends_at_a_line_feed_and_nowhere_else() {
    let cases: [(&[u8], Vec<Line>); 9] = [
        (b"", vec![]),
        (b"a\nb\n", vec![whole("a"), whole("b")]),
        (b"a\nb", vec![whole("a"), whole("b")]),
        (b"\n\r\n\n a\r\r\n\n", vec![whole(" a\r")]),
        (b"a\rb\x0b\x0c\r\n", vec![whole("a\rb\x0b\x0c")]),
        (
            "a\u{2028}b\u{2029}\u{85}c\n".as_bytes(),
            vec![whole("a\u{2028}b\u{2029}\u{85}c")],
        ),
        (b"a\0b\n", vec![whole("a\0b")]),
        (b"\xff\n{}\n", vec![Line::InvalidUtf8, whole("{}")]),
        (b"a\r", vec![whole("a")]),
    ];
    for (bytes, lines) in cases {
        assert_eq!(read(bytes, &[usize::MAX], 100), lines, "{bytes:?}");
        assert_eq!(read(bytes, &[1], 100), lines, "{bytes:?}");
    }
}

#[test]
fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
    assert_eq!(read(b"abcd\r\n", &[3], 4), [whole("abcd")]);
    assert_eq!(
        read(b"abcde\nf\n", &[3], 4),
        [Line::TooLong { bytes: 5 }, whole("f")]
    );
    assert_eq!(read(b"abcde", &[3], 4), [Line::TooLong { bytes: 5 }]);
}

#[test]
fn overlong_line_is_not_buffered() {
    let bytes = vec![b'x'; 1 << 20];
    let lengths = [1000];
    let lengths = lengths.iter().cycle();
    let bytes = bytes.as_slice();
    let mut reader = LineReader::new(Pieces { bytes, lengths }, 4000);
    let line = futures_util::FutureExt::now_or_never(reader.next()).unwrap();
    assert_eq!(line.unwrap(), Some(Line::TooLong { bytes: 1 << 20 }));
    assert_eq!(reader.buffer.capacity(), 0);
}

#[test]
fn a_line_of_fifty_mebibytes_passes() {
    let mut bytes = vec![b'x'; 50 << 20];
    bytes.push(b'\n');
    let lines = read(&bytes, &[usize::MAX], 64 << 20);
    assert!(matches!(&lines[..], [Line::Complete(line)] if line.len() == 50 << 20));
}

#[tokio::test]
async fn dropped_next_call_loses_no_bytes() {
    let (mut writer, reader) = tokio::io::duplex(64);
    let mut reader = LineReader::new(reader, 100);
    for part in ["one", " li", "ne"] {
        writer.write_all(part.as_bytes()).await.unwrap();
        let dropped = futures_util::FutureExt::now_or_never(reader.next());
        assert!(dropped.is_none());
    }
    writer.write_all(b"\n").await.unwrap();
    assert_eq!(reader.next().await.unwrap(), Some(whole("one line")));
}

#[tokio::test]
async fn read_error_is_returned() {
    let broken = torn();
    let mut reader = LineReader::new(broken, 100);
    assert_eq!(reader.next().await.unwrap(), Some(whole("a")));
    assert!(reader.next().await.is_err());
}

/// A stream of one line, then an error.
fn torn() -> impl AsyncRead + Unpin {
    struct Broken(bool);
    impl AsyncRead for Broken {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if std::mem::replace(&mut self.0, true) {
                return Poll::Ready(Err(io::Error::other("torn")));
            }
            buffer.put_slice(b"a\nb");
            Poll::Ready(Ok(()))
        }
    }
    Broken(false)
}
