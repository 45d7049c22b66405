//! What a cylinder group has: in its own header, in the summary array at `fs_csaddr`, and added up
//! in the superblock.

use super::order::on_disk;

on_disk! {
    /// `struct csum`: one group's. The summary array has one for each group.
    pub struct RawSummary, 16 {
        pub cs_ndir: i32,
        pub cs_nbfree: i32,
        pub cs_nifree: i32,
        pub cs_nffree: i32,
    }
}

on_disk! {
    /// `struct csum_total`: that of all groups. `cs_numclusters` is not kept: 0.
    pub struct RawSummaryTotal, 64 {
        pub cs_ndir: i64,
        pub cs_nbfree: i64,
        pub cs_nifree: i64,
        pub cs_nffree: i64,
        pub cs_numclusters: i64,
        pub cs_spare: [i64; 3],
    }
}

impl RawSummaryTotal {
    /// Adds a group's.
    pub fn add(&mut self, group: &RawSummary) {
        self.cs_ndir += i64::from(group.cs_ndir);
        self.cs_nbfree += i64::from(group.cs_nbfree);
        self.cs_nifree += i64::from(group.cs_nifree);
        self.cs_nffree += i64::from(group.cs_nffree);
    }
}
