//! A case: a shell script whose first lines say what it needs and how its result is compared.
//!
//! The script is started as `bash -eu SCRIPT DIRECTORY`; in its environment, `SCRATCH` is an empty
//! directory outside of the pool, `CASES` the directory of the scripts, `APPLICATIONS` that of the
//! preload library's own test scripts, `DEMO` that of the demo's, `INSTALLED` what `scripts/prepare apps`
//! has installed, and `PROJECT` this repository. It
//! ends what it starts, prints nothing that differs from run to run (times, numbers of processes), and
//! fails if something that it does fails.
//!
//! Lines of the head, each at most once:
//!
//! * `# program:` what the table says;
//! * `# needs:` pairs of a command, or a file (or a pattern), and the Debian package that has it
//!   (`git=git`), or `pypi` or `npm` for what `scripts/prepare apps` installs to [`installed`] (a path that
//!   does not begin with `/` is one below that);
//! * `# sources:` Debian source packages whose original tar files are in the directory `SOURCES`, each
//!   under the name of its package;
//! * `# before:` a shell command that makes the directory ready, on the pool or not as the script is; what
//!   it takes is not timed;
//! * `# version:` a shell command that prints the version;
//! * `# compares:` what is compared, for the table;
//! * `# volatile:` parts of names of files that hold times, inode numbers or random numbers: only that
//!   they are there is compared;
//! * `# dated:` parts of names whose time of last change must be the same, because the program sets it;
//! * `# forms:` which of `run`, `alone` and `mount` (default: the first two);
//! * `# user:` who does all of it, if the tests run as root.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a case is run on a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `arck run`: one session for all processes.
    Run,
    /// `arck run --no-group`: a session for each of them.
    Alone,
    /// `arck serve --mount`: no library, the kernel's mount.
    Mount,
}

impl Form {
    pub fn name(self) -> &'static str {
        match self {
            Form::Run => "arck run",
            Form::Alone => "arck run --no-group",
            Form::Mount => "mount",
        }
    }
}

pub struct Case {
    /// That of the script, without its ending.
    pub name: String,
    pub script: PathBuf,
    pub program: String,
    pub needs: Vec<(String, String)>,
    pub sources: Vec<String>,
    pub before: Option<String>,
    pub version: String,
    pub compares: String,
    pub volatile: Vec<String>,
    pub dated: Vec<String>,
    pub forms: Vec<Form>,
    pub user: Option<String>,
}

impl Case {
    /// All scripts of a directory, by name. Panics over a head that is not as it should be.
    pub fn all(directory: &Path) -> Vec<Case> {
        let mut scripts: Vec<PathBuf> = std::fs::read_dir(directory)
            .expect("a directory of cases")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "sh"))
            .collect();
        scripts.sort();
        scripts.into_iter().map(Case::read).collect()
    }

    fn read(script: PathBuf) -> Case {
        let text = std::fs::read_to_string(&script).expect("a script");
        let name = script
            .file_stem()
            .and_then(|name| name.to_str())
            .expect("UTF-8")
            .to_owned();
        let mut case = Case {
            program: name.clone(),
            name,
            script,
            needs: Vec::new(),
            sources: Vec::new(),
            before: None,
            version: String::new(),
            compares: String::new(),
            volatile: Vec::new(),
            dated: Vec::new(),
            forms: vec![Form::Run, Form::Alone],
            user: None,
        };
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        for line in text.lines().map_while(|line| line.strip_prefix("# ")) {
            let Some((key, value)) = line.split_once(": ") else {
                continue;
            };
            let value = value.trim();
            match key {
                "program" => case.program = value.to_owned(),
                "needs" => {
                    case.needs = value
                        .split_whitespace()
                        .map(|pair| {
                            let (tool, package) = pair.split_once('=').expect("TOOL=PACKAGE");
                            (tool.to_owned(), package.to_owned())
                        })
                        .collect();
                }
                "sources" => case.sources = words(value),
                "before" => case.before = Some(value.to_owned()),
                "version" => case.version = value.to_owned(),
                "compares" => case.compares = value.to_owned(),
                "volatile" => case.volatile = words(value),
                "dated" => case.dated = words(value),
                "forms" => {
                    case.forms = value
                        .split_whitespace()
                        .map(|word| match word {
                            "run" => Form::Run,
                            "alone" => Form::Alone,
                            "mount" => Form::Mount,
                            _ => panic!("{}: no form {word}", case.script.display()),
                        })
                        .collect();
                }
                "user" => case.user = Some(value.to_owned()),
                _ => {}
            }
        }
        assert!(
            !case.version.is_empty() && !case.compares.is_empty() && !case.forms.is_empty(),
            "{}: its head must have lines `# version:` and `# compares:`",
            case.script.display()
        );
        case
    }

    /// Says what is missing and how it is installed.
    pub fn check_needs(&self) -> Result<(), String> {
        let matches = |pattern: &str| {
            Command::new("bash")
                .args(["-c", r#"compgen -G "$1""#, "bash", pattern])
                .output()
                .is_ok_and(|output| output.status.success())
        };
        let is_there = |tool: &str| {
            if tool.starts_with('/') {
                return matches(tool);
            }
            if tool.contains('/') {
                return installed().join(tool).exists();
            }
            std::env::split_paths(&path()).any(|directory| directory.join(tool).exists())
        };
        let missing: Vec<_> = self
            .needs
            .iter()
            .filter(|(tool, _)| !is_there(tool))
            .map(|(_, package)| package.as_str())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut hint = "scripts/prepare apps".to_owned();
        if missing.iter().all(|package| !REGISTRIES.contains(package)) {
            hint += &format!(", as root, or apt-get install {}", missing.join(" "));
        }
        Err(format!("{} is not installed: {hint}", self.program))
    }
}

/// Packages that no Debian package has.
const REGISTRIES: [&str; 2] = ["pypi", "npm"];

/// Where that is which `scripts/prepare apps` does not install to the system.
pub fn installed() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("../apps")
}

/// Where libraries of node's are looked for.
pub fn node_path() -> PathBuf {
    installed().join("tools/node/node_modules")
}

/// Where programs are looked for.
pub fn path() -> OsString {
    let own =
        ["python/bin", "node/node_modules/.bin"].map(|bin| installed().join("tools").join(bin));
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::env::split_paths(&path).chain(own)).expect("a path without colons")
}
