#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ctk_fuzz::run("undo", data);
});
