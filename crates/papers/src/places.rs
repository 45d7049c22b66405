//! Places of figures that several papers have.

use backstitch_bench::Workload;

use crate::Place;

/// The sizes of files, with their names in figures.
pub(crate) const SIZES: [(&str, u64); 12] = [
    ("2 KB", 2 << 10),
    ("4 KB", 4 << 10),
    ("8 KB", 8 << 10),
    ("16 KB", 16 << 10),
    ("32 KB", 32 << 10),
    ("64 KB", 64 << 10),
    ("128 KB", 128 << 10),
    ("256 KB", 256 << 10),
    ("512 KB", 512 << 10),
    ("1 MB", 1 << 20),
    ("2 MB", 2 << 20),
    ("4 MB", 4 << 20),
];

/// One place for each size of file, with so many megabytes or so many files of that size, whichever
/// makes more files.
pub(crate) const fn sizes(
    workload: Workload,
    phases: &'static [&'static str],
    megabytes: Option<f64>,
    files: Option<u64>,
) -> [Place; SIZES.len()] {
    let mut places = [Place::of("", workload, phases); SIZES.len()];
    let mut i = 0;
    while i < places.len() {
        (places[i].name, places[i].file_bytes) = (SIZES[i].0, Some(SIZES[i].1));
        (places[i].megabytes, places[i].files) = (megabytes, files);
        i += 1;
    }
    places
}

/// Sdet with so many scripts at a time.
pub(crate) const fn scripts(name: &'static str, count: u64) -> Place {
    let mut place = Place::of(name, Workload::Sdet, &["scripts"]);
    place.scripts = Some(count);
    place
}
