//! Writes the output of the current encoders into the corpus: `cargo run --example seeds --no-default-features`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let texts = dwell_model::fuzzing::seeds().into_iter().map(|(name, bytes)| ("texts", name, bytes));
    let seeds = texts.chain(dwell_engine::fuzzing::seeds()).chain(dwell_server::fuzzing::seeds());
    let seeds = seeds.chain(dwell_redisson::fuzzing::seeds());
    for (entry, name, bytes) in seeds {
        let folder = corpus.join(entry);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}
