//! Pictures for a prompt.

use crate::platform::exit::UsageError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outlast_dialect::Image;
use std::fs::File;
use std::io::Read;
use std::path::Path;

const MAX_IMAGE_BYTES: u64 = 20 << 20;

/// Reads the picture in the given file. Its type is found from its first bytes, not from its name.
pub(crate) fn read(path: &Path) -> anyhow::Result<Image> {
    let shown = path.display();
    let failed = |error| UsageError(format!("cannot read the picture {shown}: {error}"));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    let read = file.take(MAX_IMAGE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(failed)?;
    if bytes.len() as u64 > MAX_IMAGE_BYTES {
        let limit = MAX_IMAGE_BYTES >> 20;
        return Err(UsageError(format!("the picture {shown} is larger than {limit} MiB")).into());
    }
    let Some(media_type) = media_type(&bytes) else {
        let known = "PNG, JPEG, GIF or WebP";
        return Err(UsageError(format!("{shown} is no picture that models read: {known}")).into());
    };
    Ok(Image {
        media_type: media_type.to_owned(),
        data: STANDARD.encode(&bytes),
    })
}

fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_type_is_detected_from_first_bytes() {
        let table: [(&[u8], Option<&str>); 6] = [
            (b"\x89PNG\r\n\x1a\n", Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\0\0\0\0WAVE", None),
            (b"", None),
        ];
        for (bytes, expected) in table {
            assert_eq!(media_type(bytes), expected);
        }
    }
}
