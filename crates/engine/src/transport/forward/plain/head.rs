//! Parses the head of a response.

use super::super::super::Error;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use bytes::{Bytes, BytesMut};
use std::mem::MaybeUninit;

/// The maximum size of a response's head.
const MAX_HEAD_BYTES: usize = 256 << 10;
const MAX_HEADERS: usize = 128;

/// The head of a response.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) framing: Framing,
    /// Whether another request may follow over the same connection.
    pub(super) keeps_alive: bool,
}

/// The way in which the end of a body is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// By its length.
    Length(u64),
    Chunked,
    /// By the end of the connection.
    UntilClosed,
}

impl Framing {
    /// Returns the framing for a response to the given method: some responses have no body, whatever the headers say.
    pub(super) fn for_response(self, method: &Method, status: StatusCode) -> Self {
        let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        match *method == Method::HEAD || bodiless {
            true => Self::Length(0),
            false => self,
        }
    }
}

impl Head {
    /// Takes the head off the input if it is complete.
    pub(super) fn take(input: &mut BytesMut) -> Result<Option<Self>, Error> {
        let mut fields = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            input,
            &mut fields,
        );
        let length = match parsed.map_err(Error::protocol)? {
            httparse::Status::Complete(length) => length,
            httparse::Status::Partial if input.len() > MAX_HEAD_BYTES => {
                return Err(Error::protocol("the head of the response is too long"));
            }
            httparse::Status::Partial => return Ok(None),
        };
        let status = StatusCode::from_u16(response.code.unwrap_or_default());
        let status = status.map_err(Error::protocol)?;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Error::protocol("the provider wants another protocol"));
        }
        let is_new = response.version == Some(1);
        // The values share one copy of the head: the input may be many times larger, and headers live long.
        let copy = Bytes::copy_from_slice(&input[..length]);
        let mut headers = parse_headers(response.headers, input, &copy)?;
        let framing = parse_framing(&headers, is_new)?;
        if !matches!(framing, Framing::Length(_)) {
            // A length beside chunks is meaningless, and could mislead the next reader.
            headers.remove(header::CONTENT_LENGTH);
        }
        let keeps_alive =
            is_new && framing != Framing::UntilClosed && !has_connection_close(&headers);
        bytes::Buf::advance(input, length);
        Ok(Some(Self {
            status,
            headers,
            framing,
            keeps_alive,
        }))
    }
}

fn parse_headers(
    fields: &[httparse::Header<'_>],
    input: &[u8],
    copy: &Bytes,
) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::with_capacity(fields.len() + 8);
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let name = name.map_err(Error::protocol)?;
        // The value has the same position in the copy as in the input.
        let begin = field.value.as_ptr().addr() - input.as_ptr().addr();
        let value = copy.slice(begin..begin + field.value.len());
        let value = HeaderValue::from_maybe_shared(value);
        headers.append(name, value.map_err(Error::protocol)?);
    }
    Ok(headers)
}

/// Chunks take precedence over any length. Contradicting lengths are an attack or a mistake, and are rejected.
fn parse_framing(headers: &HeaderMap, is_new: bool) -> Result<Framing, Error> {
    let encodings = headers.get_all(header::TRANSFER_ENCODING);
    let last = encodings.iter().next_back();
    if let Some(last) = last {
        let word = last.as_bytes().rsplit(|byte| *byte == b',').next();
        let word = word.unwrap_or_default().trim_ascii();
        return match word.eq_ignore_ascii_case(b"chunked") && is_new {
            true => Ok(Framing::Chunked),
            false => Ok(Framing::UntilClosed),
        };
    }
    let mut length = None;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        let digits = value
            .to_str()
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let this = digits.and_then(|digits| digits.parse::<u64>().ok());
        if this.is_none() || length.is_some_and(|before| Some(before) != this) {
            return Err(Error::protocol("the length of the response is not one"));
        }
        length = this;
    }
    Ok(length.map_or(Framing::UntilClosed, Framing::Length))
}

fn has_connection_close(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CONNECTION).iter();
    let mut words = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
}
