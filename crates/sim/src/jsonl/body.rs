//! Bodies: their lengths and contents.

use dwell_testkit::Random;

/// Quantiles of the length: in each pair, the number of bodies in 1,000 and the most bytes that they have. Between two
/// quantiles lengths are uniform. The median is 200, one in 1,000 has 16 to 64 KiB, and the mean is about 800: with
/// names, delays, escapes and base64 that makes 1 GB of a million lines.
const QUANTILES: [(u64, u64); 9] = [
    (0, 16),
    (100, 48),
    (250, 96),
    (500, 200),
    (750, 600),
    (900, 1_600),
    (990, 6_000),
    (999, 16_384),
    (1_000, 65_536),
];

/// Parts of text other than plain letters: several scripts, two code units in UTF-16, combining marks, right-to-left, and
/// all characters that JSON has to escape or that programs often mishandle.
const PIECES: [&str; 20] = [
    "Zahlung ",
    "überfällig ",
    "заказ ",
    "注文",
    "の支払い",
    "주문 ",
    "הזמנה ",
    "طلب ",
    "e\u{301}",
    "🕰️",
    "🧑‍🚀",
    "\u{10ffff}",
    "\u{2028}",
    "\u{feff}",
    "\\",
    "\"",
    "\n",
    "\t",
    "\u{1}",
    "</script>",
];

/// A random length of a body.
pub(super) fn len(rng: &mut Random) -> usize {
    let at = rng.below(1_000);
    let above = QUANTILES.iter().position(|(rank, _)| *rank > at).expect("the last rank is 1,000");
    let ((_, from), (_, to)) = (QUANTILES[above - 1], QUANTILES[above]);
    rng.between(from + 1, to) as usize
}

/// Appends plain letters, as in identifiers and JSON.
pub(super) fn ascii(rng: &mut Random, out: &mut Vec<u8>, end: usize) {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRST .,:-_{}";
    while out.len() < end {
        let mut bits = rng.next();
        for _ in 0..10.min(end - out.len()) {
            out.push(LETTERS[(bits & 63) as usize]);
            bits >>= 6;
        }
    }
}

/// Appends text of many scripts, up to `end` bytes exactly.
pub(super) fn unicode(rng: &mut Random, out: &mut Vec<u8>, end: usize) {
    loop {
        let piece = if rng.percent(70) { "ordinary words " } else { rng.pick(&PIECES) };
        if out.len() + piece.len() > end {
            break;
        }
        out.extend_from_slice(piece.as_bytes());
    }
    ascii(rng, out, end);
}

/// Appends bytes that are never valid UTF-8: the first one cannot begin a character.
pub(super) fn binary(rng: &mut Random, out: &mut Vec<u8>, end: usize) {
    out.push(0xff);
    let rest = end.saturating_sub(out.len());
    rng.fill(out, rest);
}
