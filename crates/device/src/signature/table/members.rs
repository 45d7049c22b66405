//! Tables of partitions, parts of something larger, and layers below a file system. Tables come
//! first: a signature at the end of a disk may be its last partition's.

use super::format;
use crate::signature::Kind::{Member, PartitionTable};
use crate::signature::Place::{Each, End, RoundedEnd, Start};
use crate::signature::closer;
use crate::signature::{BSD_LABEL, Signature};

pub(super) static MEMBERS: &[Signature] = &[
    format(
        "a GUID partition table (GPT)",
        PartitionTable,
        "backstitch info {} lists the partitions, and {}#1 is the first one",
        &[
            (Start(0x200), b"EFI PART"),
            (Start(0x1000), b"EFI PART"),
            (End(512), b"EFI PART"),
            (End(4096), b"EFI PART"),
        ],
        None,
    ),
    format(
        "a PC partition table (MBR)",
        PartitionTable,
        "backstitch info {} lists the partitions, and {}#1 is the first one",
        &[(Start(0x1fe), &[0x55, 0xaa])],
        Some(closer::has_partitions),
    ),
    format(
        BSD_LABEL,
        PartitionTable,
        "backstitch info {} lists the partitions, and {}#a is the first one",
        &[
            (Start(0x200), &[0x57, 0x45, 0x56, 0x82]),
            (Start(0), &[0x57, 0x45, 0x56, 0x82]),
            (Start(0x40), &[0x57, 0x45, 0x56, 0x82]),
        ],
        None,
    ),
    format(
        "a partition table of a Mac",
        PartitionTable,
        "fdisk -l {} lists the partitions",
        &[(Start(0x200), b"PM")],
        Some(closer::mac),
    ),
    format(
        "a partition table of a Sun",
        PartitionTable,
        "fdisk -l {} lists the partitions",
        &[(Start(0x1fc), &[0xda, 0xbe])],
        Some(closer::sun),
    ),
    format(
        "a partition table of SGI",
        PartitionTable,
        "fdisk -l {} lists the partitions",
        &[(Start(0), &[0x0b, 0xe5, 0xa9, 0x41])],
        None,
    ),
    format(
        "a partition table of an Amiga",
        PartitionTable,
        "parted {} print lists the partitions",
        &[(Each(0, 512, 16), b"RDSK")],
        None,
    ),
    format(
        "a UBI image",
        Member,
        "ubiattach reads it on a flash device (nandsim for an image)",
        &[(Start(0), b"UBI#")],
        None,
    ),
    format(
        "a ZFS pool's disk",
        Member,
        "zpool import -d {} finds its pool",
        &[
            (
                Each(128 << 10, 1024, 128),
                &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0],
            ),
            (
                Each(384 << 10, 1024, 128),
                &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0],
            ),
            (
                Each(128 << 10, 1024, 128),
                &[0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c],
            ),
            (
                Each(384 << 10, 1024, 128),
                &[0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c],
            ),
        ],
        None,
    ),
    format(
        "an encrypted volume (LUKS)",
        Member,
        "cryptsetup open {} NAME opens it, as /dev/mapper/NAME",
        &[
            (Start(0), b"LUKS\xba\xbe"),
            (Start(0x4000), b"SKUL\xba\xbe"),
            (Start(0x8000), b"SKUL\xba\xbe"),
            (Start(0x10000), b"SKUL\xba\xbe"),
            (Start(0x20000), b"SKUL\xba\xbe"),
            (Start(0x40000), b"SKUL\xba\xbe"),
            (Start(0x80000), b"SKUL\xba\xbe"),
            (Start(0x100000), b"SKUL\xba\xbe"),
            (Start(0x200000), b"SKUL\xba\xbe"),
            (Start(0x400000), b"SKUL\xba\xbe"),
        ],
        None,
    ),
    format(
        "an encrypted volume (BitLocker)",
        Member,
        "cryptsetup open --type bitlk {} NAME opens it, as /dev/mapper/NAME",
        &[(Start(3), b"-FVE-FS-")],
        None,
    ),
    format(
        "an LVM physical volume",
        Member,
        "vgchange -ay activates its volumes, which are in /dev/VG/",
        &[(Each(0, 512, 4), b"LABELONE")],
        Some(closer::lvm2),
    ),
    format(
        "an LVM 1 physical volume",
        Member,
        "old versions of LVM read it",
        &[(Start(0), b"HM")],
        Some(closer::lvm1),
    ),
    format(
        "a member of a Linux RAID",
        Member,
        "mdadm --assemble --scan starts the array",
        &[
            (Start(0), &[0xfc, 0x4e, 0x2b, 0xa9]),
            (Start(0x1000), &[0xfc, 0x4e, 0x2b, 0xa9]),
            (RoundedEnd(8192, 4096), &[0xfc, 0x4e, 0x2b, 0xa9]),
            (RoundedEnd(65536, 65536), &[0xfc, 0x4e, 0x2b, 0xa9]),
        ],
        None,
    ),
    format(
        "a member of a DDF RAID",
        Member,
        "mdadm --assemble --scan or the controller starts the array",
        &[(End(512), &[0xde, 0x11, 0xde, 0x11])],
        None,
    ),
    format(
        "a member of an Intel RAID",
        Member,
        "mdadm --assemble --scan starts the array",
        &[(End(1024), b"Intel Raid ISM Cfg Sig. ")],
        None,
    ),
    format(
        "a bcache device",
        Member,
        "echo {} > /sys/fs/bcache/register starts it, as /dev/bcacheN",
        &[(
            Start(0x1018),
            &[
                0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba,
                0x6d, 0x81,
            ],
        )],
        None,
    ),
    format(
        "a Ceph store (BlueStore)",
        Member,
        "ceph-volume activates it",
        &[(Start(0), b"bluestore block device")],
        None,
    ),
    format(
        "a Stratis pool's disk",
        Member,
        "stratis pool start starts its pool",
        &[
            (Start(0x204), b"!Stra0tis\x86\xff\x02^\x41rh"),
            (Start(0x1204), b"!Stra0tis\x86\xff\x02^\x41rh"),
        ],
        None,
    ),
    format(
        "a VDO volume",
        Member,
        "lvchange -ay activates it",
        &[(Start(0), b"dmvdo001")],
        None,
    ),
    format(
        "a dm-integrity volume",
        Member,
        "integritysetup open {} NAME opens it, as /dev/mapper/NAME",
        &[(Start(0), b"integrt\0")],
        None,
    ),
    format(
        "a dm-verity hash device",
        Member,
        "veritysetup open opens it together with its data",
        &[(Start(0), b"verity\0\0")],
        None,
    ),
    format(
        "an Oracle ASM disk",
        Member,
        "Oracle ASM reads it",
        &[(Start(0x20), b"ORCLDISK")],
        None,
    ),
];
