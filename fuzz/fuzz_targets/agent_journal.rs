//! Journals of the agent: any bytes are read or refused, what is read is read the same again, and no name leads elsewhere.
#![no_main]

use kiln_agent::journal::Journal;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(journal) = Journal::parse(bytes) {
        assert!(journal.files.iter().all(|file| !file.name.contains('/') && file.name != ".." && file.name != "."));
        let rendered = journal.render().expect("a journal can be written");
        assert_eq!(Journal::parse(&rendered).expect("what was rendered is a journal"), journal);
    }
});
