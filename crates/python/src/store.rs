//! Small values: a store of KVFS, beneath a mapping of Python's.

use crate::arguments::Buffer;
use crate::errors::{Refusal, of_end};
use crate::gate::Gate;
use arck_kvfs::{Batch, Error, Options, Store as Values, VALUE_MAX};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

thread_local! {
    /// A value goes here first: how long it is is known after.
    static SCRATCH: RefCell<Option<Box<[u8; VALUE_MAX]>>> = const { RefCell::new(None) };
}

/// What is said to be closed.
const WHAT: &str = "store";

/// A directory of small files as a mapping: what `arck.Store` is made of.
#[pyclass(frozen, subclass, module = "arck._arck")]
pub struct Store {
    values: Values,
    gate: Gate,
}

enum Failed {
    Closed,
    Store(Error),
}

impl From<Failed> for PyErr {
    fn from(failed: Failed) -> PyErr {
        let error = match failed {
            Failed::Closed => return Refusal::Closed(WHAT).raised(),
            Failed::Store(error) => error,
        };
        match error {
            Error::Key { .. } | Error::TooLarge { .. } => PyValueError::new_err(error.to_string()),
            Error::System { what, errno } => Refusal::Errno(errno).of(what.as_bytes()),
            other => {
                let told = (other.errno().raw_os_error(), other.to_string());
                pyo3::exceptions::PyOSError::new_err(told)
            }
        }
    }
}

/// A key or a value: bytes that do not change, or a copy of such as may.
enum Bytes<'b> {
    Own(&'b [u8]),
    Copied(Vec<u8>),
}

impl<'b> Bytes<'b> {
    fn of(object: &'b Bound<'_, PyAny>, what: &str) -> PyResult<Bytes<'b>> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Bytes::Own(bytes.as_bytes()));
        }
        let wrong = || {
            let kind = object.get_type().name().map(|name| name.to_string());
            let kind = kind.unwrap_or_default();
            PyTypeError::new_err(format!("a {what} is bytes, not {kind}"))
        };
        let buffer = Buffer::to_read(object).map_err(|_| wrong())?;
        Ok(Bytes::Copied(buffer.bytes().to_vec()))
    }

    fn get(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Copied(bytes) => bytes,
        }
    }
}

impl Store {
    /// Runs what is done on the store, without Python's lock.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Values) -> Result<T, Error> + Send,
    ) -> Result<T, Failed> {
        py.detach(|| {
            let _entered = self.gate.enter().ok_or(Failed::Closed)?;
            work(&self.values).map_err(Failed::Store)
        })
    }

    /// The length of a value, which is in the scratch memory then.
    fn read(&self, py: Python<'_>, key: &[u8]) -> Result<Option<usize>, Failed> {
        self.run(py, |values| {
            SCRATCH.with_borrow_mut(|scratch| {
                let scratch = scratch.get_or_insert_with(|| Box::new([0; VALUE_MAX]));
                values.get_into(key, scratch)
            })
        })
    }

    fn value<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = Bytes::of(key, "key")?;
        let Some(length) = self.read(py, key.get())? else {
            return Ok(None);
        };
        Ok(SCRATCH.with_borrow(|scratch| {
            let value = scratch
                .as_ref()
                .map_or(&[][..], |scratch| &scratch[..length]);
            Some(PyBytes::new(py, value))
        }))
    }

    fn missing(key: &Bound<'_, PyAny>) -> PyErr {
        PyKeyError::new_err(key.clone().unbind())
    }
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (pool, directory, *, make = true, mode = 0o644, wait = 0.0))]
    fn new(
        py: Python<'_>,
        pool: PathBuf,
        directory: &str,
        make: bool,
        mode: u32,
        wait: f64,
    ) -> PyResult<Store> {
        let patience = Duration::try_from_secs_f64(wait)
            .map_err(|_| PyValueError::new_err("wait is a number of seconds"))?;
        let mode = mode & 0o777;
        let options = Options {
            pool,
            make,
            mode,
            patience,
        };
        let opened = py.detach(|| Values::open(options, directory.trim_start_matches('/')));
        Ok(Store {
            values: opened.map_err(Failed::Store)?,
            gate: Gate::new(),
        })
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.value(py, key)?.ok_or_else(|| Store::missing(key))
    }

    /// get(key, default=None)
    /// --
    ///
    /// The value of a key, or the default if it has none.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.value(py, key)?.map(Bound::into_any).or(default))
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, value) = (Bytes::of(key, "key")?, Bytes::of(value, "value")?);
        let (key, value) = (key.get(), value.get());
        Ok(self.run(py, |values| values.set(key, value))?)
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = Bytes::of(key, "key")?;
        let bytes = bytes.get();
        match self.run(py, |values| values.delete(bytes))? {
            true => Ok(()),
            false => Err(Store::missing(key)),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = Bytes::of(key, "key")?;
        match self.read(py, key.get()) {
            Ok(found) => Ok(found.is_some()),
            // What can be no key is none.
            Err(Failed::Store(Error::Key { .. })) => Ok(false),
            Err(failed) => Err(failed.into()),
        }
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.run(py, Values::list)?.len())
    }

    /// All keys that there are now, in no order.
    fn _keys<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let keys = self.run(py, Values::list)?;
        Ok(keys.iter().map(|key| PyBytes::new(py, key)).collect())
    }

    /// Makes changes together: keys with their values, or with None to take them away.
    fn _apply(
        &self,
        py: Python<'_>,
        changes: Vec<(Bound<'_, PyAny>, Option<Bound<'_, PyAny>>)>,
    ) -> PyResult<usize> {
        if changes.len() > Batch::MAX {
            let (length, most) = (changes.len(), Batch::MAX);
            return Err(PyValueError::new_err(format!(
                "{length} changes, of which {most} at most are made together"
            )));
        }
        let changes = changes
            .iter()
            .map(|(key, value)| {
                let value = value.as_ref().map(|value| Bytes::of(value, "value"));
                Ok((Bytes::of(key, "key")?, value.transpose()?))
            })
            .collect::<PyResult<Vec<_>>>()?;
        Ok(self.run(py, |values| {
            let mut batch = Batch::new();
            for (key, value) in &changes {
                match value {
                    Some(value) => batch.set(key.get(), value.get()),
                    None => batch.delete(key.get()),
                };
            }
            values.apply(&batch)
        })?)
    }

    #[classattr]
    const BATCH_MAX: usize = Batch::MAX;
    #[classattr]
    const VALUE_MAX: usize = VALUE_MAX;

    /// Ends the store's session. Waits for other threads; does nothing the second time.
    fn _end(&self, py: Python<'_>) -> PyResult<()> {
        of_end(py.detach(|| match self.gate.close() {
            true => self.values.end(),
            false => Ok(()),
        }))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.gate.is_closed()
    }
}
