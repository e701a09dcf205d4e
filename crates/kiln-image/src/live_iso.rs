//! CoreOS live ISOs: a machine's network, Ignition config and kernel arguments in the places made for them.
//!
//! A live ISO reserves 256 KiB (`images/ignition.img`) that boot loaders load as a second initrd, and some hundred bytes for
//! kernel arguments in every boot loader's configuration. [`LiveIso::plan`] fills them; [`LiveIso::plan_reset`] gives the
//! original bytes back: zeros, and the default arguments. A plan is a value and reads a few hundred kilobytes, whatever
//! the size of the ISO. The same wish always gives the same bytes, whatever was in the ISO before.
//!
//! What does not fit is put behind the ISO, see [`grown`]. `coreos/miniso.dat` stays valid: it speaks of places that an
//! ISO without customisation has as zeros, and coreos-installer uses it on such ISOs only.
//!
//! Not here: what keyfiles and configs mean. Fact that surprises: an ISO from before 2022 boots happily with keyfiles
//! in its area and ignores them; `coreos/features.json` says whether it reads them.

mod area;
pub mod grown;
mod kargs_area;

use serde::Deserialize;

use crate::customization::Customization;
use crate::initrd::appended::fit_member;
use crate::initrd::{Embedded, Take, read_embedded};
use crate::iso9660::Iso;
use crate::{ImageError, Patch, ReadAt, Segment, kargs_line};
use area::EmbedArea;
use grown::Restored;
use kargs_area::KargAreas;

const FEATURES: &str = "coreos/features.json";
const MINISO: &str = "coreos/miniso.dat";
/// Each JSON file below `/coreos` has less than a kilobyte.
const JSON_LIMIT: u64 = 64 << 10;

/// An opened live ISO.
#[derive(Debug)]
pub struct LiveIso<D> {
    iso: Iso<Restored<D>>,
    area: EmbedArea,
    kargs: Option<KargAreas>,
    features: Features,
}

/// What `coreos/features.json` promises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Features {
    /// The installer reads `/etc/coreos/installer.d`.
    pub installer_config: bool,
    /// The live system reads keyfiles from its initrd.
    pub live_initrd_network: bool,
}

/// Which system an ISO starts, as its label says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Such as `fedora-coreos`.
    pub name: String,
    /// Such as `44.20261101.3.0`.
    pub version: String,
}

/// Kernel arguments of the live system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kargs {
    /// What is there now.
    pub current: String,
    /// What a reset puts there.
    pub default: String,
    /// How many bytes there may be.
    pub capacity: usize,
}

/// How full the area for Ignition and network is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes of the area.
    pub capacity: u64,
    /// Bytes up to the last one that is not zero.
    pub used: u64,
    /// Whether Kiln put a larger area behind the ISO.
    pub is_grown: bool,
}

impl<D: ReadAt> LiveIso<D> {
    /// Finds the areas. What is in them is not looked at.
    pub fn open(disk: D) -> Result<Self, ImageError> {
        let iso = Iso::open(Restored::open(disk)?)?;
        let area = EmbedArea::find(&iso)?;
        let kargs = KargAreas::find(&iso)?;
        let features = match iso.read_file(FEATURES, JSON_LIMIT)? {
            Some(json) => parse_json(FEATURES, &json)?,
            None => Features::default(),
        };
        Ok(LiveIso { iso, area, kargs, features })
    }

    /// The label of the volume.
    pub fn volume_id(&self) -> &str {
        self.iso.volume_id()
    }

    /// Name and version, if the label has the form CoreOS uses.
    pub fn release(&self) -> Option<Release> {
        let label = self.volume_id();
        let (at, _) =
            label.match_indices('-').find(|(at, _)| label[at + 1..].starts_with(|c: char| c.is_ascii_digit()))?;
        Some(Release { name: label[..at].to_owned(), version: label[at + 1..].to_owned() })
    }

    /// What the ISO says it can do.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Whether a minimal ISO can be extracted from it.
    pub fn has_miniso(&self) -> Result<bool, ImageError> {
        Ok(self.iso.find(MINISO)?.is_some())
    }

    /// Ignition config, network files and whatever else is in the area.
    pub fn embedded(&self) -> Result<Embedded, ImageError> {
        read_embedded(self.area_bytes()?.as_slice(), Take::All)
    }

    /// Kernel arguments; ISOs from before 2021 have no place for them.
    pub fn kargs(&self) -> Result<Option<Kargs>, ImageError> {
        let Some(areas) = &self.kargs else { return Ok(None) };
        let (default, capacity) = (areas.default.clone(), areas.capacity());
        Ok(Some(Kargs { current: areas.read(self.iso.disk())?, default, capacity }))
    }

    /// How full the area is.
    pub fn room(&self) -> Result<Room, ImageError> {
        let bytes = self.area_bytes()?;
        let is_grown = self.iso.disk().grown().is_some();
        Ok(Room { capacity: bytes.len() as u64, used: used(&bytes), is_grown })
    }

    /// Everything that is wished for, in place of what is there.
    pub fn plan(&self, wish: &Customization) -> Result<Plan, ImageError> {
        wish.check()?;
        let Customization { network, ignition, append_kargs, delete_kargs, firstboot_kargs } = wish;
        if !network.is_empty() && !self.features.live_initrd_network {
            return Err(ImageError::refused(
                "network files",
                "the live system of this ISO does not read them from its initrd (coreos/features.json has no live-initrd-network)",
                "use an ISO from 2022 or later, or put the files into the Ignition config",
            ));
        }
        let embedded = Embedded {
            ignition: ignition.clone(),
            network: network.iter().map(|file| (file.name.clone(), file.bytes.clone())).collect(),
            ..Embedded::default()
        };
        // The installer hands arguments of the live system on to the first boot of what it installs.
        let append: Vec<&String> = append_kargs.iter().chain(firstboot_kargs).collect();
        let (kargs, missing) = match &self.kargs {
            Some(areas) => {
                let edited = kargs_line::edit(&areas.default, delete_kargs, append);
                (Some(edited.line), edited.missing)
            }
            None if append.is_empty() && delete_kargs.is_empty() => (None, Vec::new()),
            None => {
                let problem = "this ISO has no place for them (neither coreos/kargs.json nor a coreKarg header)";
                return Err(ImageError::refused("kernel arguments", problem, "use an ISO from 2021 or later"));
            }
        };
        let mut plan = self.compose(&embedded, kargs)?;
        plan.notes.extend(missing.iter().map(|karg| format!("kernel argument `{karg}` was not there to be deleted")));
        Ok(plan)
    }

    /// The original bytes.
    pub fn plan_reset(&self) -> Result<Plan, ImageError> {
        self.plan(&Customization::default())
    }

    /// Everything as it is, without the network files.
    pub fn plan_without_network(&self) -> Result<Plan, ImageError> {
        let mut embedded = self.embedded()?;
        embedded.network.clear();
        self.compose(&embedded, self.kargs()?.map(|kargs| kargs.current))
    }

    /// The ISO with exactly this in its areas.
    fn compose(&self, embedded: &Embedded, kargs: Option<String>) -> Result<Plan, ImageError> {
        let original = self.iso.disk();
        let mut plan = Plan {
            // What Kiln put behind the ISO goes in any case; it may come again.
            patch: original.restoring().clone(),
            kept: original.len(),
            tail: Vec::new(),
            notes: Vec::new(),
        };
        if let (Some(areas), Some(line)) = (&self.kargs, kargs) {
            areas.write(original, &line, &mut plan)?;
        }
        let files = embedded.files();
        let mut archive = Vec::new();
        if !files.is_empty() {
            match fit_member(&files, self.area.length)? {
                Ok(fitting) => archive = fitting,
                Err(needed) => grown::grow(&self.iso, &self.area, &files, needed, &mut plan)?,
            }
        }
        // Behind the archive only what was there before has to be cleared: the rest is zeros already.
        let before = used(&self.area.read(original)?);
        archive.resize(archive.len().max(before as usize), 0);
        plan.patch.write(self.area.offset, &archive);
        Ok(plan)
    }

    /// What is in the area that boot loaders load.
    fn area_bytes(&self) -> Result<Vec<u8>, ImageError> {
        match self.iso.disk().grown() {
            Some(place) => self.iso.disk().read_grown(place),
            None => self.area.read(self.iso.disk()),
        }
    }
}

/// A new ISO over an old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Bytes that differ within what is kept.
    pub patch: Patch,
    /// How many bytes of the old ISO are kept, from its beginning.
    pub kept: u64,
    /// What comes behind them.
    pub tail: Vec<u8>,
    /// What the user should know.
    pub notes: Vec<String>,
}

impl Plan {
    /// How many bytes the new ISO has.
    pub fn length(&self) -> u64 {
        self.kept + self.tail.len() as u64
    }

    /// The new ISO as ranges of the old one and bytes between.
    pub fn segments(&self) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut position = 0;
        for (offset, bytes) in self.patch.pieces() {
            segments.push(Segment::Base(position..offset));
            segments.push(Segment::Own(bytes.to_vec()));
            position = offset + bytes.len() as u64;
        }
        segments.push(Segment::Base(position..self.kept));
        segments.push(Segment::Own(self.tail.clone()));
        segments.retain(|segment| !segment.is_empty());
        segments
    }
}

/// Bytes up to the last one that is not zero.
fn used(bytes: &[u8]) -> u64 {
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1)
}

fn parse_json<'a, T: Deserialize<'a>>(path: &str, json: &'a [u8]) -> Result<T, ImageError> {
    serde_json::from_slice(json).map_err(|error| ImageError::damaged(format!("ISO file `{path}`"), error.to_string()))
}
