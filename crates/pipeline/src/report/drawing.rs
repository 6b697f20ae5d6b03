//! A picture as it is written, element by element.
//!
//! Invariant: whatever comes from elsewhere passes [`escaped`], which leaves no character that means something to a
//! reader of XML; there is no way to add markup but those here, and none of them can fetch or run anything.

use outlast_kernel::text;
use std::fmt::Write;

/// The most shapes that a picture has: more than anybody can tell apart.
const MAX_SHAPES: usize = 8000;
/// The most of a text that is shown when somebody points at a shape, in bytes.
const MAX_TITLE_BYTES: usize = 400;

const PATTERNS: &str = r##"<defs>
<pattern id="waits" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="#fff4dc"/><rect width="2.4" height="6" fill="#d99a1c"/></pattern>
<pattern id="nobody" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><rect width="8" height="8" fill="#f1f2f4"/><rect width="1.5" height="8" fill="#c9ccd2"/></pattern>
</defs>
"##;

/// Where something is, from its upper left corner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// What a shape looks like; attributes of our own.
pub(super) type Style = &'static str;

/// What a text looks like; attributes of our own.
pub(super) type Font = &'static str;

/// A picture as far as it is written.
#[derive(Debug)]
pub(super) struct Drawing {
    size: (f64, f64),
    title: String,
    body: String,
    shapes: usize,
}

impl Drawing {
    /// A picture of that size, with a name for who cannot see it.
    pub(super) fn new(size: (f64, f64), title: &str) -> Self {
        Self {
            size,
            title: escaped(title),
            body: String::new(),
            shapes: 0,
        }
    }

    /// A rectangle, with what is shown when somebody points at it.
    pub(super) fn rectangle(&mut self, area: Rect, look: Style, title: &str) {
        self.shapes += 1;
        if self.shapes > MAX_SHAPES {
            return;
        }
        let Rect {
            x,
            y,
            width,
            height,
        } = area;
        let shape = format!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" {look}"#
        );
        self.shape(&shape, "rect", title);
    }

    /// A straight line, with what is shown when somebody points at it.
    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), look: (Style, &str)) {
        let ((x1, y1), (x2, y2), (look, title)) = (from, to, look);
        let shape = format!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" {look}"#);
        self.shape(&shape, "line", title);
    }

    fn shape(&mut self, shape: &str, name: &str, title: &str) {
        let written = match title {
            "" => writeln!(self.body, "{shape}/>"),
            title => {
                let title = escaped(&text::bounded(title, MAX_TITLE_BYTES));
                writeln!(self.body, "{shape}><title>{title}</title></{name}>")
            }
        };
        // A string takes what it is given.
        written.ok();
    }

    /// A text that begins, ends or is centred there, as its font says.
    pub(super) fn text(&mut self, (x, y): (f64, f64), font: Font, text: &str) {
        let text = escaped(text);
        writeln!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" {font}>{text}</text>"#
        )
        .ok();
    }

    /// How many shapes did not fit.
    pub(super) const fn left_out(&self) -> usize {
        self.shapes.saturating_sub(MAX_SHAPES)
    }

    /// The picture as a file.
    pub(super) fn finish(self) -> String {
        let (width, height) = self.size;
        let (title, body) = (self.title, self.body);
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" font-family="system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif">
<title>{title}</title>
{PATTERNS}<rect width="{width}" height="{height}" fill="#ffffff"/>
{body}</svg>
"##
        )
    }
}

/// A text without anything that means something to a reader of XML.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text::plain(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML has no place for these.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
