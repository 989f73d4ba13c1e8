//! One virtual machine: started, listened to, killed.
//!
//! # Invariant
//! The machine never outlives the value: it is killed when that is dropped, and by the kernel when
//! this program ends in any other way.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What a machine is made of.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    pub emulator: PathBuf,
    /// Where the emulator's own libraries are, if not in the system's places.
    pub libraries: Option<String>,
    pub firmware: Vec<PathBuf>,
    pub kernel: PathBuf,
    pub initial_files: PathBuf,
    /// Backs the persistent memory.
    pub image: PathBuf,
    pub image_size: u64,
    pub board: PathBuf,
    pub processors: u64,
    /// Which stores the controller and its sessions flush: `auto`, or `never` to see that it shows.
    pub persist: String,
    /// Further words for the emulator.
    pub further: Vec<String>,
}

/// A machine that runs.
pub struct Machine {
    child: Child,
    lines: Receiver<String>,
    log: File,
    /// All that the console said, for the report of a failure.
    pub said: Vec<String>,
}

/// For so long a machine may say nothing at all: much longer than anything takes.
const SILENCE_MAX: Duration = Duration::from_secs(600);

impl Machine {
    /// Starts it; its console is also written to `log`.
    pub fn start(parts: &Parts, mut log: File) -> Result<Machine, String> {
        let mut command = Command::new(&parts.emulator);
        if let Some(libraries) = &parts.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        for firmware in &parts.firmware {
            command.arg("-L").arg(firmware);
        }
        let memory = |id: &str, path: &PathBuf, size: u64| {
            format!(
                "memory-backend-file,id={id},share=on,mem-path={},size={size}",
                path.display()
            )
        };
        // The plugin knows where a kernel without randomisation has all memory mapped.
        let words = format!(
            "console=ttyS0 quiet panic=-1 oops=panic nokaslr no5lvl arck_persist={}",
            parts.persist
        );
        command
            .args(["-accel", "tcg", "-machine", "pc,nvdimm=on", "-cpu", "max"])
            .args(["-smp", &parts.processors.to_string()])
            .args(["-m", "512M,slots=2,maxmem=4G"])
            .args([
                "-nodefaults",
                "-nographic",
                "-no-reboot",
                "-serial",
                "stdio",
            ])
            .arg("-kernel")
            .arg(&parts.kernel)
            .arg("-initrd")
            .arg(&parts.initial_files)
            .args(["-append", &words])
            .args(["-object", &memory("media", &parts.image, parts.image_size)])
            .args(["-device", "nvdimm,memdev=media"])
            .args([
                "-object",
                &memory("board", &parts.board, crate::board::SIZE as u64),
            ])
            .args(["-device", "ivshmem-plain,memdev=board"])
            .args(&parts.further)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // SAFETY: between fork and exec it makes one system call, which is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                let signal = Some(rustix::process::Signal::KILL);
                Ok(rustix::process::set_parent_process_death_signal(signal)?)
            });
        }
        let mut child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", parts.emulator.display()))?;
        let (sender, lines) = channel();
        let streams: [Option<Box<dyn std::io::Read + Send>>; 2] = [
            child.stdout.take().map(|stream| Box::new(stream) as _),
            child.stderr.take().map(|stream| Box::new(stream) as _),
        ];
        for stream in streams.into_iter().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                    if sender.send(text).is_err() {
                        return;
                    }
                }
            });
        }
        // Without it a failed start would be reported without its reason.
        writeln!(log, "{command:?}").map_err(|error| error.to_string())?;
        Ok(Machine {
            child,
            lines,
            log,
            said: Vec::new(),
        })
    }

    /// The next line that the console says before `until`; `Ok(None)` if there is none by then.
    ///
    /// # Errors
    /// The machine has ended.
    pub fn line(&mut self, until: Option<Instant>) -> Result<Option<String>, String> {
        let wait = until.map_or(SILENCE_MAX, |until| {
            until.saturating_duration_since(Instant::now())
        });
        match self.lines.recv_timeout(wait) {
            Ok(line) => {
                // While it runs, so that one can look at a machine that hangs.
                let _ = writeln!(self.log, "{line}");
                self.said.push(line.clone());
                Ok(Some(line))
            }
            Err(RecvTimeoutError::Timeout) if until.is_some() => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(format!(
                "the machine has said nothing for {} s",
                SILENCE_MAX.as_secs()
            )),
            Err(RecvTimeoutError::Disconnected) => Err("the machine has ended".to_owned()),
        }
    }

    /// Cuts the power.
    pub fn cut(mut self) -> Vec<String> {
        self.end();
        while let Ok(line) = self.lines.recv() {
            let _ = writeln!(self.log, "{line}");
            self.said.push(line);
        }
        std::mem::take(&mut self.said)
    }

    fn end(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}
