//! Where sectors lie on the platters, and how long the arm takes.

use crate::spec::RotatingSpec;

/// Nanoseconds of a time in milliseconds.
pub(crate) fn ns_of_ms(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

/// Nanoseconds of bytes at a rate in millions of bytes a second.
pub(crate) fn ns_of_bytes(bytes: u64, mb_s: f64) -> u64 {
    (bytes as f64 * 1e3 / mb_s).round() as u64
}

struct Zone {
    first_sector: u64,
    first_cylinder: u32,
    /// Sectors on a track.
    sectors: u64,
    /// How far the first sector of a track lies behind that of the track before, in sectors: as
    /// many as pass during the switch of heads.
    track_skew: u64,
    /// The same where the arm moves to the next cylinder.
    cylinder_skew: u64,
}

/// A place on the platters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) zone: u32,
    pub(crate) cylinder: u32,
    pub(crate) head: u32,
    /// The sector of the track.
    pub(crate) sector: u64,
    /// When in a revolution it comes under the head.
    pub(crate) angle_ns: u64,
}

/// The platters and the arm.
pub(crate) struct Geometry {
    zones: Vec<Zone>,
    heads: u64,
    pub(crate) capacity_sectors: u64,
    pub(crate) revolution_ns: u64,
    head_switch_ns: u64,
    /// Seek times by distance in cylinders. Kept small, since a look-up is made for every
    /// candidate.
    seek_ns: Vec<u32>,
}

impl Geometry {
    pub(crate) fn new(spec: &RotatingSpec) -> Geometry {
        let revolution_ns = (60e9 / spec.rpm).round() as u64;
        let cylinders: u32 = spec.zones.iter().map(|zone| zone.cylinders).sum();
        let seek_ns: Vec<u32> = (0..cylinders).map(|d| seek_ns(&spec.seek, d)).collect();
        let head_switch_ns = ns_of_ms(spec.head_switch_ms);
        let next_cylinder_ns = seek_ns.get(1).map_or(0, |&ns| u64::from(ns));
        let next_cylinder_ns = next_cylinder_ns.max(head_switch_ns);
        let heads = u64::from(spec.heads);
        let (mut first_sector, mut first_cylinder) = (0, 0);
        let mut zones = Vec::with_capacity(spec.zones.len());
        for zone in &spec.zones {
            let sectors = u64::from(zone.sectors);
            let skew = |ns: u64| (ns * sectors).div_ceil(revolution_ns) % sectors;
            zones.push(Zone {
                first_sector,
                first_cylinder,
                sectors,
                track_skew: skew(head_switch_ns),
                cylinder_skew: skew(next_cylinder_ns),
            });
            first_sector += sectors * heads * u64::from(zone.cylinders);
            first_cylinder += zone.cylinders;
        }
        Geometry {
            zones,
            heads,
            capacity_sectors: spec.capacity_sectors.unwrap_or(first_sector),
            revolution_ns,
            head_switch_ns,
            seek_ns,
        }
    }

    /// Where a sector lies.
    pub(crate) fn place(&self, sector: u64) -> Place {
        let index = (self.zones).partition_point(|zone| zone.first_sector <= sector) - 1;
        let zone = &self.zones[index];
        let track = (sector - zone.first_sector) / zone.sectors;
        let (cylinder, head) = (track / self.heads, track % self.heads);
        let within = (sector - zone.first_sector) % zone.sectors;
        let a_cylinder = (self.heads - 1) * zone.track_skew + zone.cylinder_skew;
        let skew = cylinder * a_cylinder + head * zone.track_skew;
        let angle = (within + skew) % zone.sectors;
        Place {
            zone: index as u32,
            cylinder: zone.first_cylinder + cylinder as u32,
            head: head as u32,
            sector: within,
            angle_ns: angle * self.revolution_ns / zone.sectors,
        }
    }

    /// How long until the arm is over another track, without the settling of a write.
    pub(crate) fn seek(&self, from: &Place, to: &Place) -> u64 {
        let distance = from.cylinder.abs_diff(to.cylinder) as usize;
        match distance {
            0 if from.head == to.head => 0,
            0 => self.head_switch_ns,
            _ => self.seek_ns[distance].into(),
        }
    }

    /// How long until a place comes under the head.
    pub(crate) fn rotation(&self, to: &Place, at_ns: u64) -> u64 {
        let now = at_ns % self.revolution_ns;
        if to.angle_ns >= now {
            to.angle_ns - now
        } else {
            to.angle_ns + self.revolution_ns - now
        }
    }

    /// The time that the head needs for some sectors, from the moment when the first is under it,
    /// with the switches to further tracks.
    pub(crate) fn stream(&self, from: &Place, sectors: u64) -> u64 {
        self.streamed(from, sectors, u64::MAX).1
    }

    /// How many of these sectors the head has passed after a time, and the time until then: less if
    /// it has passed all of them.
    pub(crate) fn streamed(&self, from: &Place, sectors: u64, elapsed_ns: u64) -> (u64, u64) {
        let (mut at, mut passed, mut ns) = (*from, 0, 0);
        loop {
            let zone = &self.zones[at.zone as usize];
            let here = (zone.sectors - at.sector).min(sectors - passed);
            let here_ns = here * self.revolution_ns / zone.sectors;
            if ns + here_ns > elapsed_ns {
                // The most sectors that take no longer, with their time rounded down as above.
                let left_ns = elapsed_ns - ns + 1;
                let some = (left_ns * zone.sectors).div_ceil(self.revolution_ns) - 1;
                return (passed + some, elapsed_ns);
            }
            (passed, ns) = (passed + here, ns + here_ns);
            if passed == sectors {
                return (passed, ns);
            }
            ns += self.next_track(&mut at);
            if ns >= elapsed_ns {
                return (passed, elapsed_ns);
            }
        }
    }

    /// Moves to the first sector of the next track. Returns the time until it is under the head.
    fn next_track(&self, at: &mut Place) -> u64 {
        at.sector = 0;
        at.head += 1;
        let mut zone = &self.zones[at.zone as usize];
        let mut skew = zone.track_skew;
        if u64::from(at.head) == self.heads {
            (at.head, at.cylinder) = (0, at.cylinder + 1);
            let next = self.zones.get(at.zone as usize + 1);
            if let Some(next) = next.filter(|next| next.first_cylinder == at.cylinder) {
                (zone, at.zone) = (next, at.zone + 1);
            }
            skew = zone.cylinder_skew;
        }
        skew * self.revolution_ns / zone.sectors
    }

    /// The first sector of each zone, and the end.
    pub(crate) fn zone_bounds(&self) -> Vec<u64> {
        let first = self.zones.iter().map(|zone| zone.first_sector);
        first.chain([self.capacity_sectors]).collect()
    }

    /// The average over all pairs of cylinders, as makers state it.
    pub(crate) fn average_seek_ns(&self) -> f64 {
        let n = self.seek_ns.len() as f64;
        let pairs = |distance: usize| 2.0 * (n - distance as f64);
        let all = (1..self.seek_ns.len()).map(|d| pairs(d) * f64::from(self.seek_ns[d]));
        all.sum::<f64>() / (n * (n - 1.0))
    }
}

/// The seek curve at a distance.
fn seek_ns(points: &[(u32, f64)], distance: u32) -> u32 {
    if distance == 0 {
        return 0;
    }
    let after = points.partition_point(|point| point.0 < distance);
    let ms = match (after.checked_sub(1).map(|i| points[i]), points.get(after)) {
        (Some((near, near_ms)), Some(&(far, far_ms))) => {
            let [d, near, far] = [distance, near, far].map(|d| f64::from(d).sqrt());
            near_ms + (far_ms - near_ms) * (d - near) / (far - near)
        }
        (None, Some(&(_, ms))) | (Some((_, ms)), None) => ms,
        (None, None) => 0.0,
    };
    ns_of_ms(ms) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DriveSpec;

    fn viking() -> Geometry {
        let spec = DriveSpec::preset("viking").unwrap();
        Geometry::new(&spec.rotating.unwrap())
    }

    #[test]
    fn every_sector_has_a_place_of_its_own() {
        let geometry = viking();
        let mut last = geometry.place(0);
        for sector in 1..200_000 {
            let place = geometry.place(sector);
            let follows = place.sector == last.sector + 1
                || place.sector == 0 && place.head == last.head + 1
                || place.sector == 0 && place.head == 0 && place.cylinder == last.cylinder + 1;
            assert!(follows, "{last:?} before {place:?}");
            last = place;
        }
    }

    #[test]
    fn streaming_ends_where_the_next_sector_is() {
        let geometry = viking();
        for (from, sectors) in [(0, 1), (17, 500), (5_000, 20_000), (8_000_000, 3_000)] {
            let place = geometry.place(from);
            let end_ns = place.angle_ns + geometry.stream(&place, sectors);
            let next = geometry.place(from + sectors);
            let wait = geometry.rotation(&next, end_ns);
            // Less than a switch and a sector; or nearly a revolution, where rounding passed it.
            let late = geometry.revolution_ns - 100_000;
            assert!(
                wait < 1_300_000 || wait > late,
                "{from}+{sectors}: {wait} ns"
            );
        }
    }

    #[test]
    fn streamed_is_the_inverse_of_stream() {
        let geometry = viking();
        let place = geometry.place(1_000);
        for sectors in [1, 10, 300, 4_000] {
            let ns = geometry.stream(&place, sectors);
            assert_eq!(geometry.streamed(&place, 100_000, ns).0, sectors);
            assert!(geometry.streamed(&place, 100_000, ns - 1).0 < sectors);
        }
    }

    #[test]
    fn the_curve_goes_through_its_points() {
        let points = [(1, 1.0), (100, 5.0), (300, 9.0)];
        let at = |d| seek_ns(&points, d);
        assert_eq!(
            (at(0), at(1), at(100), at(300)),
            (0, 1_000_000, 5_000_000, 9_000_000)
        );
        assert_eq!(at(400), 9_000_000);
        assert!(at(50) > 3_000_000 && at(50) < 5_000_000);
    }
}
