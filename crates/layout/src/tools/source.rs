//! Where a check reads from: a device, or bytes that are in memory already.
//!
//! A crash explorer checks thousands of states a second, all in memory: it must not copy an image
//! just to look at it. So a source may lend its bytes, and may know that some of them are zeros.

use backstitch_device::{BlockDevice, DeviceError, check_range};

/// Bytes to check.
pub trait Source: Sync {
    /// How many there are.
    fn size_bytes(&self) -> u64;

    /// `length` bytes from `offset` on: the source's own where they lie together in its memory,
    /// otherwise read into `scratch`.
    ///
    /// # Errors
    ///
    /// The device's, and [`DeviceError::OutOfRange`] past the end.
    fn bytes<'a>(
        &'a self,
        offset: u64,
        length: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], DeviceError>;

    /// Whether these bytes are known to be zeros without looking at them. `false` where that is not
    /// known.
    fn is_known_zero(&self, _offset: u64, _length: usize) -> bool {
        false
    }

    /// How much to ask for at once where a long run is wanted: much where every request costs,
    /// little where bytes are lent in pieces.
    fn run_bytes(&self) -> usize {
        256 << 10
    }
}

/// A device as a source.
pub struct DeviceSource<'d>(pub &'d dyn BlockDevice);

impl Source for DeviceSource<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn bytes<'a>(
        &'a self,
        offset: u64,
        length: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], DeviceError> {
        scratch.resize(length, 0);
        self.0.read(offset, scratch)?;
        Ok(scratch)
    }
}

/// A whole image in memory as a source.
pub struct SliceSource<'b>(pub &'b [u8]);

impl Source for SliceSource<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn bytes<'a>(
        &'a self,
        offset: u64,
        length: usize,
        _scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], DeviceError> {
        check_range("memory", self.size_bytes(), offset, length as u64)?;
        Ok(&self.0[offset as usize..][..length])
    }
}
