//! The shell, with an engine of its own that keeps a note in the root blob. An author of an engine may begin with this.

use imbrex_device::{Class, Drive, Error, Result, ZonedDevice};
use imbrex_emulator::{Config, Emulator, Overrides, Profile};
use imbrex_zones::shell::{Engine, Maintenance, Opened, Opener, Rest, Shell, Start, UriOption};
use imbrex_zones::{Budget, Exec, FormatOptions, Tenant, TenantSpec, Volume, VolumeOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

/// What every note is, whichever tenant it is of.
struct Note {
    tenant: Tenant,
    options: NoteOptions,
    maintenance: Arc<Maintenance>,
    damage: Vec<String>,
    chores: AtomicU32,
    in_chore: AtomicBool,
    closed: AtomicBool,
}

struct NoteOptions {
    volume: VolumeOptions,
    /// Is written when the note is opened.
    text: Option<String>,
    /// A zone that the drive must have.
    zone: u32,
    fails: bool,
    works: bool,
    look: bool,
}

impl Default for NoteOptions {
    fn default() -> Self {
        let volume = VolumeOptions { exec: Exec::Threads(1), survivor_bytes: 1 << 20, ..VolumeOptions::default() };
        NoteOptions { volume, text: None, zone: 0, fails: false, works: false, look: false }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Figures {
    text: String,
    chores: u32,
    closed: bool,
}

impl Note {
    fn open(tenant: Tenant, options: NoteOptions, maintenance: Arc<Maintenance>) -> Result<Note> {
        tenant.begin()?;
        tenant.adoption_done();
        tenant.recovered()?;
        if options.fails {
            return Err(Error::unusable(&tenant.volume().name(), "does not want to"));
        }
        let damage = if tenant.root() == b"torn" { vec!["The note is torn.".into()] } else { Vec::new() };
        let note = Note {
            tenant,
            options,
            maintenance,
            damage,
            chores: AtomicU32::new(0),
            in_chore: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        };
        note.options.text.as_deref().map_or(Ok(()), |text| note.write(text))?;
        Ok(note)
    }

    fn write(&self, text: &str) -> Result<()> {
        self.tenant.set_root(text.as_bytes())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.tenant.root()).into_owned()
    }

    fn figures(&self) -> Figures {
        Figures {
            text: self.text(),
            chores: self.chores.load(Ordering::SeqCst),
            closed: self.closed.load(Ordering::SeqCst),
        }
    }

    /// Takes until somebody wants it to be over.
    fn chore(&self) -> Option<Rest> {
        self.in_chore.store(true, Ordering::SeqCst);
        while self.chores.load(Ordering::SeqCst) == 1 && !self.maintenance.is_over() {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.chores.fetch_add(1, Ordering::SeqCst);
        self.in_chore.store(false, Ordering::SeqCst);
        Some(Rest { time: Duration::from_secs(3600), until_rung: true })
    }
}

fn spec(name: &str) -> TenantSpec {
    TenantSpec { name: name.into(), budget: Budget::keeping(0, 1) }
}

macro_rules! note_of {
    ($engine:ident, $tenant:literal) => {
        struct $engine(Note);

        impl Engine for $engine {
            const TENANT: &'static str = $tenant;
            const OPTIONS: &'static [UriOption<NoteOptions>] = &[
                ("text", |o, given| {
                    o.text = Some(given.value.into());
                    Ok(())
                }),
                ("zone", |o, given| given.number(0..=1000).map(|zone| o.zone = zone)),
                ("fails", |o, given| given.on().map(|fails| o.fails = fails)),
                ("works", |o, given| given.on().map(|works| o.works = works)),
            ];
            type Options = NoteOptions;
            type Error = Error;
            type Figures = Figures;
            type Chores = ();

            fn opened() -> &'static Opened<$engine> {
                static OPENED: LazyLock<Opened<$engine>> = LazyLock::new(Opened::default);
                &OPENED
            }
            fn volume_options(options: &mut NoteOptions) -> &mut VolumeOptions {
                &mut options.volume
            }
            fn look(options: &mut NoteOptions) {
                options.look = true;
            }
            fn check(options: &NoteOptions, device: &dyn ZonedDevice) -> std::result::Result<(), String> {
                let zones = device.geometry().zones;
                if options.zone < zones { Ok(()) } else { Err(format!("the drive has {zones} zones")) }
            }
            fn format(drive: &Drive) -> Result<()> {
                Volume::format(drive, &FormatOptions { uuid: None, tenants: vec![spec($tenant)], force: false })
            }
            fn open(start: Start<$engine>) -> Result<$engine> {
                Note::open(start.tenant, start.options, start.maintenance).map($engine)
            }
            fn volume(&self) -> &Volume {
                self.0.tenant.volume()
            }
            fn damage(&self) -> &[String] {
                &self.0.damage
            }
            fn figures(&self) -> Figures {
                self.0.figures()
            }
            fn wants_thread(&self) -> bool {
                self.0.options.works
            }
            fn chore(&self, _: &mut ()) -> Option<Rest> {
                self.0.chore()
            }
            fn close(&self) -> Result<()> {
                assert!(!self.0.in_chore.load(Ordering::SeqCst), "the thread was joined before");
                self.0.closed.store(true, Ordering::SeqCst);
                Ok(())
            }
        }
    };
}

note_of!(One, "one");
note_of!(Two, "two");

fn open(uri: &str) -> Result<Shell<One>> {
    Shell::open_uri(uri, &[], &mut ())
}

fn refused<E: Engine<Error = Error>>(uri: &str) -> Error {
    Shell::<E>::open_uri(uri, &[], &mut ()).err().expect("it is refused")
}

/// A drive in an image, formatted for these engines.
fn image(dir: &Path, tenants: &[&str]) -> (PathBuf, String) {
    let path = dir.join("drive.img");
    let device = Arc::new(Emulator::create(&path, &Config::tiny(), false).unwrap());
    if !tenants.is_empty() {
        let tenants = tenants.iter().map(|name| spec(name)).collect();
        let drive = Drive { device, survivor: None };
        Volume::format(&drive, &FormatOptions { uuid: None, tenants, force: false }).unwrap();
    }
    let uri = format!("imbrex://{}?survivor=off", path.display());
    (path, uri)
}

fn until(what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < Duration::from_secs(60), "it never happens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_process_has_an_engine_of_a_drive_once() {
    let dir = tempfile::tempdir().unwrap();
    let (_, uri) = image(dir.path(), &["one"]);
    let first = open(&format!("{uri}&text=hello")).unwrap();
    // By another name, and with options that come too late.
    let second = open(&format!("imbrex://{}/./drive.img?text=late", dir.path().display())).unwrap();
    assert_eq!(second.0.text(), "hello");
    second.0.write("changed").unwrap();
    assert_eq!((first.0.text(), first.volume().mount()), ("changed".into(), second.volume().mount()));
    drop(first);
    assert!(second.watch().is_open());
    let mount = second.volume().mount();
    drop(second);
    let again = open(&uri).unwrap();
    assert_eq!((again.0.text(), again.volume().mount()), ("changed".into(), mount + 1));
}

#[test]
fn a_look_sees_what_is_open_and_otherwise_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (path, uri) = image(dir.path(), &["one"]);
    let look = || Shell::<One>::open_uri(&uri, &[("read-only", "on")], &mut ()).unwrap();
    let note = open(&format!("{uri}&text=kept")).unwrap();
    let seen = look();
    assert!(!seen.0.options.look, "it is the one that is open");
    note.0.write("later").unwrap();
    assert_eq!(seen.0.text(), "later");
    drop((note, seen));
    let before = std::fs::read(&path).unwrap();
    let seen = look();
    assert!(seen.0.options.look);
    seen.0.write("forgotten").unwrap();
    assert_eq!(look().0.text(), "forgotten", "looks of one process share a cover");
    drop(seen);
    assert_eq!(look().0.text(), "later");
    assert!(std::fs::read(&path).unwrap() == before, "the image has changed");
}

#[test]
fn what_a_uri_asks_for_is_understood_or_refused_in_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let (_, uri) = image(dir.path(), &["one"]);
    for (option, says) in [
        ("txet=x", "there is no option \"txet\"; the nearest are text"),
        ("suvivor=on", "the nearest are survivor and survivor-size"),
        ("text=a&text=b", "twice"),
        ("zone=many", "zone=many is not a number from 0 to 1000"),
        ("fails=perhaps", "fails=perhaps: \"perhaps\" is neither on nor off"),
        ("survivor-size=1K", "survivor-size=1K is not between 1M and 4G"),
        ("format=maybe", "format=maybe"),
        ("host-sync=maybe", "host-sync=maybe"),
        ("zone=1000", "the drive has"),
    ] {
        let error = refused::<One>(&format!("{uri}&{option}"));
        assert!(error.to_string().contains(says), "{option}: {error}");
        assert_eq!(error.class(), Class::Usage, "{option}");
    }
    let more = [("zone", "3"), ("text", "more"), ("max-io", "64K")];
    let note = Shell::<One>::open_uri(&format!("{uri}&text=uri&survivor-size=2M"), &more, &mut ()).unwrap();
    assert_eq!((note.0.text(), note.0.options.zone), ("uri".into(), 3), "what the URI does not give");
    assert_eq!((note.volume().geometry().max_io, note.0.options.volume.survivor_bytes), (64 << 10, 2 << 20));
    let mut names = imbrex_zones::shell::names::<One>();
    names.sort_unstable();
    assert_eq!(names, ["fails", "format", "survivor-size", "text", "works", "zone"]);
}

#[test]
fn a_drive_in_memory_formats_itself_and_another_where_that_is_asked_for() {
    let note = open("imbrex://mem:?profile=tiny&text=mine").unwrap();
    assert_eq!(
        open("imbrex://mem:?profile=tiny&text=other").unwrap().0.text(),
        "mine",
        "the same name, the same drive"
    );
    assert_eq!(open("imbrex://mem:?profile=tiny&size=32M").unwrap().0.text(), "", "another one");
    drop(note);
    assert_eq!(open("imbrex://mem:?profile=tiny").unwrap().0.text(), "", "it went with its last user");
    assert!(refused::<One>("imbrex://mem:?read-only=on").to_string().contains("cannot be opened read-only"));

    let dir = tempfile::tempdir().unwrap();
    let (path, uri) = image(dir.path(), &[]);
    assert!(refused::<One>(&uri).to_string().contains("has no Imbrex label"));
    // A look changes nothing, whatever is asked for.
    assert!(refused::<One>(&format!("{uri}&format=on&read-only=on")).to_string().contains("has no Imbrex label"));
    drop(open(&format!("{uri}&format=on&text=first")).unwrap());
    assert_eq!(open(&format!("{uri}&format=on")).unwrap().0.text(), "first", "it was formatted already");
    assert!(refused::<Two>(&format!("{uri}&format=on")).to_string().contains("formatted for one, not for two"));

    // Of a blank drive that cannot be formatted it is of interest why.
    let over = Overrides { capacity: Some(2 << 20), conventional: Some(2), ..Overrides::default() };
    let config = Config::new(&Profile::named("tiny").unwrap(), &over);
    let small = path.with_file_name("small.img");
    let device = Arc::new(Emulator::create(&small, &config, false).unwrap());
    let why = One::format(&Drive { device, survivor: None }).unwrap_err().to_string();
    let uri = format!("imbrex://{}?survivor=off", small.display());
    assert_eq!(refused::<One>(&format!("{uri}&format=on")).to_string(), why);
    assert!(refused::<One>(&uri).to_string().contains("has no Imbrex label"));
}

#[test]
fn the_thread_works_rests_is_rung_and_joined() {
    let note = open("imbrex://mem:?profile=tiny&works=on&size=48M").unwrap();
    until(|| note.0.chores.load(Ordering::SeqCst) == 1 && note.0.maintenance.is_attended());
    note.0.maintenance.ring();
    until(|| note.0.in_chore.load(Ordering::SeqCst));
    // It would go on for ever.
    let (watch, said) = (note.watch(), Arc::new(Mutex::new(None)));
    let say = said.clone();
    watch.at_close(move |last| *say.lock().unwrap() = Some(last.own));
    drop(note);
    let last = said.lock().unwrap().clone();
    assert_eq!(last, Some(Figures { text: String::new(), chores: 2, closed: true }));

    let inline = NoteOptions { works: true, ..NoteOptions::default() };
    let volume = VolumeOptions { exec: Exec::Inline, ..inline.volume.clone() };
    let drive = Drive { device: Arc::new(Emulator::memory(&Config::tiny()).unwrap()), survivor: None };
    One::format(&drive).unwrap();
    let note = Shell::<One>::open_drive(drive, NoteOptions { volume, ..inline }, false, &mut ()).unwrap();
    assert!(!note.0.maintenance.is_attended(), "there are no threads");
    while note.step().unwrap() {}
    assert_eq!(note.0.chores.load(Ordering::SeqCst), 0);
}

#[test]
fn two_engines_of_one_process_share_a_volume() {
    let dir = tempfile::tempdir().unwrap();
    let (_, uri) = image(dir.path(), &["one", "two"]);
    let one = open(&format!("{uri}&text=first")).unwrap();
    let two = Shell::<Two>::open_uri(&format!("{uri}&text=second"), &[], &mut ()).unwrap();
    assert!(Arc::ptr_eq(one.volume().device(), two.volume().device()));
    assert_eq!((one.0.text(), two.0.text()), ("first".into(), "second".into()));
    let commands = |of: &[imbrex_drives::counted::Count]| of.iter().flat_map(|count| count.commands).sum::<u64>();
    let counted = |figures: Option<imbrex_zones::shell::Metrics<Figures>>| commands(&figures.unwrap().commands);
    assert_eq!(counted(one.watch().figures()), counted(two.watch().figures()), "the drive's, whoever asked for them");
    // What the volume knows of its zones is of when it was opened.
    drop(one);
    let sentence = refused::<One>(&uri).to_string();
    assert!(sentence.contains("its one has been closed") && sentence.contains("close that one, too"), "{sentence}");
    two.0.write("goes on").unwrap();
    drop(two);
    let one = open(&uri).unwrap();
    let two = Shell::<Two>::open_uri(&uri, &[], &mut ()).unwrap();
    assert_eq!((one.0.text(), two.0.text()), ("first".into(), "goes on".into()));
}

#[test]
fn an_engine_that_does_not_open_gives_the_drive_back() {
    let dir = tempfile::tempdir().unwrap();
    let (path, uri) = image(dir.path(), &["one", "two"]);
    for _ in 0..3 {
        assert!(refused::<One>(&format!("{uri}&fails=on")).to_string().contains("does not want to"));
        // Whoever else asks for it gets it.
        drop(imbrex_drives::open(path.to_str().unwrap(), &Default::default()).unwrap());
    }
    drop(open(&uri).unwrap());
    // An engine that had its share and failed has ended, as far as the volume knows.
    let two = Shell::<Two>::open_uri(&uri, &[], &mut ()).unwrap();
    assert!(refused::<One>(&format!("{uri}&fails=on")).to_string().contains("does not want to"));
    drop(two);
    assert!(open(&uri).is_ok());
}

#[test]
fn a_watch_keeps_nothing_open() {
    let dir = tempfile::tempdir().unwrap();
    let (path, uri) = image(dir.path(), &["one"]);
    let note = open(&format!("{uri}&text=torn")).unwrap();
    let watch = note.watch();
    let figures = watch.figures().unwrap();
    assert_eq!((figures.drive.as_str(), figures.mount), (path.to_str().unwrap(), note.volume().mount()));
    assert_eq!((figures.damage, figures.poisoned, figures.text.as_str()), (0, false, "torn"));
    let zones: u64 = figures.zones.iter().map(|(_, n)| n).sum();
    assert_eq!(zones, u64::from(note.volume().geometry().zones));
    assert!(figures.commands.iter().any(|count| count.bytes_written > 0));
    drop(note);
    assert!(!watch.is_open() && watch.figures().is_none());
    drop(imbrex_drives::open(path.to_str().unwrap(), &Default::default()).unwrap());
    watch.at_close(|_| unreachable!("it has closed"));
    assert_eq!(open(&uri).unwrap().watch().figures().unwrap().damage, 1);
}

/// Writes the note anew before it is opened, which nobody else may see.
struct Restoring(bool);

impl Opener<One> for Restoring {
    fn alone(&self) -> bool {
        true
    }
    fn prepare(&mut self, drive: &Drive, _: &NoteOptions) -> Result<()> {
        self.0 = drive.device.geometry().zones > 0;
        Ok(())
    }
    fn open(&mut self, start: Start<One>) -> Result<One> {
        let note = One::open(start)?;
        note.0.write("restored").map(|()| note)
    }
}

#[test]
fn an_opening_of_a_special_kind_may_want_to_be_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (_, uri) = image(dir.path(), &["one"]);
    let note = open(&uri).unwrap();
    for more in [&[][..], &[("read-only", "on")]] {
        let mut restoring = Restoring(false);
        let error = Shell::<One>::open_uri(&uri, more, &mut restoring).err().unwrap();
        assert_eq!((error.class(), restoring.0), (Class::Busy, false), "{error}");
    }
    drop(note);
    let mut restoring = Restoring(false);
    assert_eq!(Shell::<One>::open_uri(&uri, &[], &mut restoring).unwrap().0.text(), "restored");
    assert!(restoring.0);
}

#[test]
fn an_engine_of_a_volume_that_is_open_leaves_it_open() {
    let drive = Drive { device: Arc::new(Emulator::memory(&Config::tiny()).unwrap()), survivor: None };
    let tenants = vec![spec("one"), spec("two")];
    Volume::format(&drive, &FormatOptions { uuid: None, tenants, force: false }).unwrap();
    let volume = Volume::open(drive, NoteOptions::default().volume).unwrap();
    let one = Shell::<One>::open_tenant(volume.tenant("one").unwrap(), NoteOptions::default()).unwrap();
    let two = Shell::<Two>::open_tenant(volume.tenant("two").unwrap(), NoteOptions::default()).unwrap();
    drop(one);
    two.0.write("still").unwrap();
    let again = Shell::<One>::open_tenant(volume.tenant("one").unwrap(), NoteOptions::default());
    assert!(again.err().unwrap().to_string().contains("its one is open, or has been"));
    assert_eq!(two.0.text(), "still");
}
