//! Access control lists, as they are on the disk and as Linux shows them. The input is a mode (2
//! bytes), and a list.

use backstitch_ext::format::posix_acl::Acl;

use crate::Input;

/// An ACL read in one form can be written in both forms and read again.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mode = input.word() & 0o7777;
    let list = input.rest();
    for acl in [Acl::from_disk(list), Acl::from_linux(list)] {
        let Some(mut acl) = acl else { continue };
        assert_eq!(Acl::from_disk(&acl.to_disk()).as_ref(), Some(&acl));
        assert_eq!(Acl::from_linux(&acl.to_linux()).as_ref(), Some(&acl));
        let inherited = acl.inherit(mode);
        assert_eq!(inherited.mode_bits() & !mode, 0);
        acl.set_mode_bits(mode);
        assert_eq!(acl.mode_bits(), mode & 0o777);
        assert!(acl.is_minimal() == (acl.entries().len() == 3));
    }
}
