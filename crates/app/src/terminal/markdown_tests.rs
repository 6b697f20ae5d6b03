//! What documents look like, and what holds for every text: see the header of `markdown`.

use super::*;

#[test]
fn probe() {
    for text in [
        "```\ncode\n``",
        "```rust\nfn",
        "a [^1] b\n\n[^1]: note words\n    more",
        "x [^1]",
        "[t][id] [id] [id][]\n\n[id]: http://x.y 'ti'\n[k]: <z>\nrest",
        "- a\n  b\n\n  c\n- [x] d\n- \n- e",
        "Text\n-",
        "> - a\n>   - b\n> \n> c\n\n<div>\nhi\n</div>\n\n<b>x</b><br>y",
        "| a | b |\n|--:|:-:|\n| 1 | `2` |\n",
    ] {
        println!("=== {text:?}");
        for (e, r) in Parser::new_ext(text, options()).into_offset_iter() {
            println!("  {e:?} {r:?}");
        }
        for l in lines(text, 30, &Theme::colour()) {
            println!("|{l}");
        }
    }
}
