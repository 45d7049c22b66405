//! Other files, which are no disk images.

use super::format;
use crate::signature::Kind::File;
use crate::signature::Place::Start;
use crate::signature::Signature;
use crate::signature::closer;

pub(super) static FILES: &[Signature] = &[
    format(
        "a write-ahead log",
        File,
        "backstitch wafs info {}",
        &[(Start(0), b"BSTCHWAL"), (Start(4096), b"BSTCHWAL")],
        None,
    ),
    format(
        "a log of writes (dm-log-writes)",
        File,
        "backstitch crash device explores it",
        &[(Start(0), b"rhswfsj\0")],
        None,
    ),
    format(
        "an undo file of e2fsprogs or of backstitch fsck",
        File,
        "backstitch undo {} IMAGE applies it",
        &[(Start(0), b"E2UNDO02")],
        None,
    ),
    format(
        "an SQLite database",
        File,
        "sqlite3 {} reads it",
        &[(Start(0), b"SQLite format 3\0")],
        None,
    ),
    format(
        "a program (ELF)",
        File,
        "it is no disk image",
        &[(Start(0), b"\x7fELF")],
        None,
    ),
    format(
        "a program for Windows",
        File,
        "it is no disk image",
        &[(Start(0), b"MZ")],
        Some(closer::windows),
    ),
    format(
        "a PDF document",
        File,
        "it is no disk image",
        &[(Start(0), b"%PDF-")],
        None,
    ),
    format(
        "a picture",
        File,
        "it is no disk image",
        &[
            (Start(0), b"\x89PNG\r\n\x1a\n"),
            (Start(0), &[0xff, 0xd8, 0xff]),
            (Start(0), b"GIF8"),
        ],
        None,
    ),
    format(
        "a film or a recording",
        File,
        "it is no disk image",
        &[
            (Start(4), b"ftyp"),
            (Start(0), &[0x1a, 0x45, 0xdf, 0xa3]),
            (Start(0), b"OggS"),
            (Start(0), b"RIFF"),
            (Start(0), b"ID3"),
            (Start(0), b"fLaC"),
        ],
        None,
    ),
    format(
        "text",
        File,
        "it is no disk image",
        &[(Start(0), b"")],
        Some(closer::text),
    ),
];
